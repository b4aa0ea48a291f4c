"""The section `workers`: their number, resources and placement."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import Anything, Buffer, Image, ObjectName, problem
from distributed_input.api.resource.sections.pods import (
    AcceleratorSpec,
    Objects,
    Placement,
    ResourceRequirements,
    Variables,
    Volumes,
)


class AutoscalingSpec(Section):
    """The bounds of autoscaling, which adapts the number of workers to the trainers' demand."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.minReplicas <= self.maxReplicas",
                "minReplicas is greater than maxReplicas: lower minReplicas or raise maxReplicas",
            )
        )
    )

    min_replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Minimum number of workers. 0 needs `workers.local`. Default: 1.",
    )
    max_replicas: int = Field(
        ge=1, le=1000, description="Maximum number of workers. Required.", examples=[8]
    )
    paused: bool = Field(
        default=False,
        description="Keep the number of workers unchanged while true. Default: false.",
    )
    stabilization_window_seconds: int = Field(
        default=120,
        ge=0,
        le=3600,
        description="Seconds that fewer workers must have been enough before workers are removed. "
        "Default: 120.",
    )
    idle_ttl_seconds: Annotated[int, Field(ge=0, le=604800)] | None = Field(
        default=None,
        alias="idleTTLSeconds",
        description="Seconds without a reading trainer before all workers are removed, also below "
        "minReplicas. Workers return with the first trainer that reads. Default: no limit; "
        "minReplicas workers stay.",
        examples=[600],
    )

    @model_validator(mode="after")
    def _check_bounds(self) -> AutoscalingSpec:
        if self.min_replicas > self.max_replicas:
            raise problem(
                f"{self.min_replicas} is greater than maxReplicas {self.max_replicas}: lower "
                "minReplicas or raise maxReplicas",
                "minReplicas",
            )
        return self


class LocalWorkerSpec(Section):
    """A worker in each trainer's pod, which uses the CPUs that the trainer leaves idle."""

    cpus: int = Field(
        ge=1,
        le=1024,
        description="Maximum number of CPUs of the container. The worker uses those that are idle, "
        "and at least one at the lowest priority. Required.",
        examples=[16],
    )
    memory: Buffer = Field(
        description="Memory of the container, requested and as limit, from 1Mi to 1Ti. TensorFlow "
        "alone needs about 700Mi. Required.",
        examples=["4Gi"],
    )


class WorkersSpec(Section):
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
        "one cannot produce. `distributed-input run` then starts one worker, as with "
        "`--workers local`. Default: none.",
        examples=[{"cpus": 16, "memory": "4Gi"}],
    )
    parallelism: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="Number of rows that one worker computes in parallel. Default: the worker's "
        "CPU request in a cluster; the number of cores with `distributed-input run`.",
        examples=[4],
    )
    image: Image | None = Field(
        default=None,
        description="Image with TensorFlow, distributed-input and the dataset's code. Default: "
        "the operator's image for workers.",
    )
    resources: ResourceRequirements = Field(
        default=ResourceRequirements(),
        description="CPU and memory of a worker. Default: requests of 250m CPU and 512Mi memory, "
        "no limits.",
    )
    accelerator: AcceleratorSpec | None = Field(
        default=None,
        description="Accelerators of each worker, for a dataset that computes on them. "
        "Default: none.",
    )
    placement: Placement = Field(
        default="anywhere",
        description="Nodes that workers run on. anywhere: all nodes. near-trainers: preferably the "
        "trainers' nodes. dedicated: only nodes without trainers of this namespace. "
        "Default: anywhere.",
    )
    spot: bool = Field(
        default=False,
        description="Prefer spot nodes and tolerate their taints. A lost worker loses no rows. "
        "Default: false.",
    )
    priority_class_name: ObjectName | None = Field(
        default=None,
        description="PriorityClass of worker pods. The cluster autoscaler adds no node for pods "
        "with a priority below -10. Default: the cluster's default.",
    )
    service_account_name: ObjectName | None = Field(
        default=None,
        description="ServiceAccount of worker pods, for access to storage by workload identity. "
        "Default: a ServiceAccount without permissions.",
    )
    node_selector: dict[str, str] = Field(
        default={}, description="Node selector of worker pods, as in a pod's spec. Default: none."
    )
    tolerations: Objects = Field(
        default=[], description="Tolerations of worker pods, as in a pod's spec. Default: none."
    )
    env: Variables = Field(
        default=[],
        description="Environment variables of the worker's container, as in a container. Use "
        "valueFrom for secrets. Default: none.",
    )
    volumes: Volumes = Field(
        default=[],
        description="Volumes of worker pods, as in a pod's spec: for example claims, secrets and "
        "CSI volumes. Default: none.",
    )
    volume_mounts: Objects = Field(
        default=[],
        description="Volume mounts of the worker's container, as in a container. Default: none.",
    )
    state_directory: Annotated[str, Field(pattern=r"^/.+$", max_length=512)] | None = Field(
        default=None,
        description="Folder in which workers save the state of splits, so that a restored job "
        "does not compute their rows again. Mount a volume there that all workers share, with "
        "`volumes` and `volumeMounts`. `distributed-input run` has a folder of its own. Default: "
        "none.",
        examples=["/states"],
    )
    termination_grace_period_seconds: int = Field(
        default=60,
        ge=5,
        le=3600,
        description="Seconds that a stopping worker may use to finish its splits. Then other "
        "workers continue them. Default: 60.",
    )
    pod_template: Anything = Field(
        default={},
        description="Pod template that is merged over the workers' pod template, for settings "
        "without a field here. Mappings merge by key. Lists merge as in the API server, such as "
        "containers by name and volume mounts by path. Other lists are replaced. Default: none.",
    )

    @model_validator(mode="after")
    def _check_local(self) -> WorkersSpec:
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
