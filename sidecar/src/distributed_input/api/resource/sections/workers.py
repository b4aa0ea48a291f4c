"""The section `workers`: their number, pod template and placement."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import DOMAIN_PATH, Buffer, problem
from distributed_input.api.resource.sections.template import (
    TemplateContainer,
    TemplatePodSpec,
    WorkerTemplate,
)


class AutoscalingSpec(Section):
    """The bounds of autoscaling, which adapts the number of workers to the trainers' demand."""

    model_config = cel(
        (
            "self.minReplicas <= self.maxReplicas",
            "minReplicas is greater than maxReplicas: lower minReplicas or raise maxReplicas",
        )
    )

    min_replicas: int = Field(default=1, ge=0, le=1000)
    """Minimum number of workers. 0 needs `workers.local`. Default: 1."""
    max_replicas: int = Field(ge=1, le=1000, examples=[8])
    """Maximum number of workers. Required."""
    paused: bool = False
    """Keep the number of workers unchanged while true. Default: false."""
    stabilization_window_seconds: int = Field(default=120, ge=0, le=3600)
    """Seconds that fewer workers must have been enough before workers are removed. Default: 120."""
    idle_ttl_seconds: Annotated[int, Field(ge=0, le=604800)] | None = Field(
        default=None, alias="idleTTLSeconds", examples=[600]
    )
    """Seconds without a reading trainer before all workers are removed, also below minReplicas.
    Workers return with the first trainer that reads. Default: no limit; minReplicas workers
    stay."""

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

    cpus: int = Field(ge=1, le=1024, examples=[16])
    """Maximum number of CPUs of the container. The worker uses those that are idle, and at least
    one at the lowest priority. Required."""
    memory: Buffer = Field(examples=["4Gi"])
    """Memory of the container, requested and as limit, from 1Mi to 1Ti. TensorFlow alone needs
    about 700Mi. Required."""


class AcceleratorSpec(Section):
    """Accelerators of each worker, which a device plugin offers as an extended resource."""

    resource_name: Annotated[str, Field(pattern=DOMAIN_PATH, max_length=253)] = Field(
        examples=["nvidia.com/gpu"]
    )
    """Extended resource of a node. Workers tolerate a taint of the same name. Required."""
    count: int = Field(default=1, ge=1, le=256)
    """Number of accelerators per worker. Default: 1."""
    node_selector: dict[str, str] = Field(
        default={}, examples=[{"nvidia.com/gpu.product": "NVIDIA-L4"}]
    )
    """Labels of nodes with the accelerator, such as its product. Default: any node."""


_TWO_NUMBERS = (
    "autoscaling sets the number of workers: remove replicas, and use autoscaling.minReplicas and "
    "autoscaling.maxReplicas, or remove autoscaling"
)


class WorkersSpec(Section):
    """The processes that run the input pipeline."""

    model_config = cel(
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
        # The field has a default, which a HorizontalPodAutoscaler reads.
        ("!has(self.autoscaling) || self.replicas == 1", _TWO_NUMBERS),
    )

    replicas: int = Field(default=1, ge=0, le=1000, examples=[2])
    """Number of worker pods. 0 pauses the input, unless `local` is set. `kubectl scale` and a
    HorizontalPodAutoscaler change it. Excludes `autoscaling`, which allows only the default.
    Default: 1."""
    autoscaling: AutoscalingSpec | None = None
    """Bounds of autoscaling, which sets the number of worker pods. Excludes `replicas`. Default: no
    autoscaling."""
    local: LocalWorkerSpec | None = Field(default=None, examples=[{"cpus": 16, "memory": "4Gi"}])
    """Worker container that is added to each trainer's pod, in addition to the worker pods. A
    trainer reads from its own worker first, and from worker pods what that one cannot produce.
    `distributed-input run` then starts one worker, as with `--workers local`. Default: none."""
    parallelism: Annotated[int, Field(ge=1, le=1024)] | None = Field(default=None, examples=[4])
    """Number of rows that one worker computes in parallel. Default: the worker's CPU request in a
    cluster; the number of cores with `distributed-input run`."""
    accelerator: AcceleratorSpec | None = None
    """Accelerators of each worker, for a dataset that computes on them. For dynamic resource
    allocation, use resourceClaims in `template`. Default: none."""
    placement: Literal["Anywhere", "NearTrainers", "Dedicated"] = "Anywhere"
    """Nodes that workers run on. Anywhere: all nodes. NearTrainers: preferably the trainers' nodes.
    Dedicated: only nodes without trainers of this namespace. Default: Anywhere."""
    spot: bool = False
    """Prefer spot nodes and tolerate their taints. A lost worker loses no rows. Default: false."""
    state_directory: Annotated[str, Field(pattern=r"^/.+$", max_length=512)] | None = Field(
        default=None, examples=["/states"]
    )
    """Folder in which workers save the state of splits, so that a restored job does not compute
    their rows again. Mount a volume there that all workers share, with `template`.
    `distributed-input run` has a folder of its own. Default: none."""
    template: WorkerTemplate = Field(
        default=WorkerTemplate(),
        examples=[{"spec": {"containers": [{"name": "worker", "image": "registry/digits:1"}]}}],
    )
    """Pod template that is merged over the workers' pod template. Mappings merge by key. Lists
    merge as in the API server, such as containers by name. Default: none."""

    @property
    def pod(self) -> TemplatePodSpec:
        """The fields of worker pods."""
        return self.template.spec

    @property
    def container(self) -> TemplateContainer:
        """The fields of the container that runs the pipeline."""
        return self.template.worker

    @model_validator(mode="after")
    def _check_number(self) -> WorkersSpec:
        if self.autoscaling is not None and self.replicas != 1:
            raise problem(_TWO_NUMBERS, "replicas")
        return self

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
