"""The section `workers` of v1beta1: their number, pod template and placement."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import Anything, Image, ObjectName, Quantity, problem
from distributed_input.api.resource.sections.pods import Objects, Variables, Volumes
from distributed_input.api.resource.sections.workers import AutoscalingSpec, LocalWorkerSpec

DOMAIN_PATH = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
"""A name with the domain of its owner, such as nvidia.com/gpu."""
_OPEN = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
"""Further fields are those of Kubernetes, and the API server checks them with the pod."""


class ContainerResources(Section):
    """CPU, memory and other resources of a container."""

    model_config = _OPEN

    requests: dict[str, Quantity] = Field(
        default={}, description="Resources that the scheduler reserves on the node."
    )
    limits: dict[str, Quantity] = Field(
        default={}, description="Maximum resources that the container can use."
    )
    claims: Objects = Field(
        default=[],
        description="Claims of devices, by their names in the pod's resourceClaims. Default: none.",
        examples=[[{"name": "gpu"}]],
    )


class TemplateContainer(Section):
    """A container. `worker` is the one that runs the pipeline; others run beside it."""

    model_config = _OPEN

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="Name of the container. worker: the one that runs the pipeline. Required.",
        examples=["worker"],
    )
    image: Image | None = Field(
        default=None,
        description="Image with TensorFlow, distributed-input and the dataset's code. Default: "
        "the operator's image for workers.",
    )
    resources: ContainerResources | None = Field(
        default=None,
        description="CPU and memory. Default: requests of 250m CPU and 512Mi memory, no limits.",
    )
    env: Variables = Field(
        default=[], description="Environment variables. Use valueFrom for secrets. Default: none."
    )
    volume_mounts: Objects = Field(default=[], description="Volume mounts. Default: none.")


class TemplatePodSpec(Section):
    """The spec of worker pods, as in a pod template."""

    model_config = _OPEN

    containers: list[TemplateContainer] = Field(
        default=[],
        description="Containers, which merge by name with those of the operator. Default: none.",
    )
    volumes: Volumes = Field(
        default=[], description="Volumes, in addition to those of the operator. Default: none."
    )
    node_selector: dict[str, str] = Field(default={}, description="Node selector. Default: none.")
    tolerations: Objects = Field(
        default=[], description="Tolerations, in addition to those of the operator. Default: none."
    )
    service_account_name: ObjectName | None = Field(
        default=None,
        description="ServiceAccount, for access to storage by workload identity. Default: a "
        "ServiceAccount without permissions.",
    )
    priority_class_name: ObjectName | None = Field(
        default=None,
        description="PriorityClass. The cluster autoscaler adds no node for pods with a priority "
        "below -10. Default: the cluster's default.",
    )
    termination_grace_period_seconds: int = Field(
        default=60,
        ge=5,
        le=3600,
        description="Seconds that a stopping worker may use to finish its splits. Then other "
        "workers continue them. Default: 60.",
    )

    @model_validator(mode="after")
    def _check_names(self) -> TemplatePodSpec:
        names = [one.name for one in self.containers]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise problem(f"two have the name {name!r}: merge them", "containers")
        return self


class WorkerTemplate(Section):
    """A pod template that is merged over the workers' pod template."""

    metadata: Anything = Field(
        default={}, description="Labels and annotations of worker pods. Default: none."
    )
    spec: TemplatePodSpec = Field(
        default=TemplatePodSpec(), description="Spec of worker pods, as in a pod template."
    )


class BetaAccelerator(Section):
    """Accelerators of each worker, which a device plugin offers as an extended resource."""

    resource_name: Annotated[str, Field(pattern=DOMAIN_PATH, max_length=253)] = Field(
        description="Extended resource of a node. Workers tolerate a taint of the same name. "
        "Required.",
        examples=["nvidia.com/gpu"],
    )
    count: int = Field(
        default=1, ge=1, le=256, description="Number of accelerators per worker. Default: 1."
    )
    node_selector: dict[str, str] = Field(
        default={},
        description="Labels of nodes with the accelerator, such as its product. Default: any node.",
        examples=[{"nvidia.com/gpu.product": "NVIDIA-L4"}],
    )


class BetaWorkers(Section):
    """The processes that run the input pipeline."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!has(self.autoscaling) || self.autoscaling.minReplicas > 0 || has(self.local)",
                "autoscaling.minReplicas is 0, but there are no workers beside the trainers: add "
                "local, or use autoscaling.idleTTLSeconds to remove all workers while no trainer "
                "reads",
            ),
            (
                "!has(self.local) || !has(self.accelerator)",
                "local excludes accelerator, because the trainer uses the accelerators of its pod: "
                "remove one of them",
            ),
            (
                "!has(self.autoscaling) || !has(oldSelf.autoscaling) || "
                "self.replicas == oldSelf.replicas",
                "replicas cannot change while autoscaling sets the number of workers: change "
                "autoscaling.minReplicas or autoscaling.maxReplicas, or remove autoscaling",
            ),
        )
    )

    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Number of worker pods. 0 pauses the input, unless `local` is set. "
        "`kubectl scale` and a HorizontalPodAutoscaler change it. Ignored if `autoscaling` is "
        "set. Default: 1.",
        examples=[2],
    )
    autoscaling: AutoscalingSpec | None = Field(
        default=None,
        description="Bounds of autoscaling. Default: no autoscaling; `replicas` is the number of "
        "workers.",
    )
    local: LocalWorkerSpec | None = Field(
        default=None,
        description="Worker container that is added to each trainer's pod, in addition to the "
        "worker pods. A trainer reads from its own worker first, and from worker pods what that "
        "one cannot produce. Default: none.",
        examples=[{"cpus": 16, "memory": "4Gi"}],
    )
    parallelism: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="Number of rows that one worker computes in parallel. Default: the worker's "
        "CPU request in a cluster; the number of cores with `distributed-input run`.",
        examples=[4],
    )
    accelerator: BetaAccelerator | None = Field(
        default=None,
        description="Accelerators of each worker, for a dataset that computes on them. For dynamic "
        "resource allocation, use resourceClaims in `template`. Default: none.",
    )
    placement: Literal["Anywhere", "NearTrainers", "Dedicated"] = Field(
        default="Anywhere",
        description="Nodes that workers run on. Anywhere: all nodes. NearTrainers: preferably the "
        "trainers' nodes. Dedicated: only nodes without trainers of this namespace. "
        "Default: Anywhere.",
    )
    spot: bool = Field(
        default=False,
        description="Prefer spot nodes and tolerate their taints. A lost worker loses no rows. "
        "Default: false.",
    )
    state_directory: Annotated[str, Field(pattern=r"^/.+$", max_length=512)] | None = Field(
        default=None,
        description="Folder in which workers save the state of splits, so that a restored job "
        "does not compute their rows again. Mount a volume there that all workers share, with "
        "`template`. `distributed-input run` has a folder of its own. Default: none.",
        examples=["/states"],
    )
    template: WorkerTemplate = Field(
        default=WorkerTemplate(),
        description="Pod template that is merged over the workers' pod template. Mappings merge by "
        "key. Lists merge as in the API server, such as containers by name. Default: none.",
        examples=[{"spec": {"containers": [{"name": "worker", "image": "registry/digits:1"}]}}],
    )

    @model_validator(mode="after")
    def _check_local(self) -> BetaWorkers:
        if self.local is not None and self.accelerator is not None:
            raise problem(
                "excludes accelerator, because the trainer uses the accelerators of its pod: "
                "remove one of them",
                "local",
            )
        if self.autoscaling and not self.autoscaling.min_replicas and self.local is None:
            raise problem(
                "0 needs workers beside the trainers: add local, or use "
                "autoscaling.idleTTLSeconds to remove all workers while no trainer reads",
                "autoscaling",
                "minReplicas",
            )
        return self


def fits(section: type[Section], field: str, value: Any) -> bool:
    """Whether a typed field of a section, by its name in YAML, may have this value."""
    names = {one.alias: name for name, one in section.model_fields.items()}
    if field not in names or value is None:
        return False
    required = {"name": "worker"} if "name" in section.model_fields else {}
    try:
        section.model_validate({**required, field: value})
    except ValidationError:
        return False
    return True
