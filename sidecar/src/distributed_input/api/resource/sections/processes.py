"""The sections `dispatcher`, `sidecar`, `trainers`, `store` and `tfDataService`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from distributed_input.api import names
from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import (
    MIB,
    Anything,
    Buffer,
    Image,
    ObjectName,
    PriorityClassName,
    Weight,
    problem,
    quantity,
    quantity_bytes,
)
from distributed_input.api.resource.sections.template import Objects, ResourceRequirements
from distributed_input.api.sidecar_memory import PROCESS_BYTES

SIDECAR_BYTES = PROCESS_BYTES
"""Memory that a sidecar needs in addition to its buffer."""


class DispatcherSpec(Section):
    """The process that registers workers and trainers, and assigns splits to workers."""

    model_config = cel(
        (
            f"!has(self.port) || self.port != {names.METRICS_PORT}",
            f"port {names.METRICS_PORT} is the dispatcher's port for metrics: use another port",
        )
    )

    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(default=None, examples=[7070])
    """Port that the dispatcher's process listens on. In a cluster, its Service always has port
    7070. Default: 7070 in a cluster; a free port with `distributed-input run`."""
    image: Image | None = None
    """Image of the dispatcher. Default: the operator's image for sidecars."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU and memory of the dispatcher's container. Default: requests of 100m CPU and 128Mi memory,
    no limits."""
    node_selector: dict[str, str] = Field(default={})
    """Node selector of the dispatcher's pod, as in a pod's spec. Default: none."""
    tolerations: Objects = Field(default=[])
    """Tolerations of the dispatcher's pod, as in a pod's spec. Default: none."""
    priority_class_name: ObjectName | None = None
    """PriorityClass of the dispatcher's pod. Default: the cluster's default."""

    @model_validator(mode="after")
    def _check_port(self) -> DispatcherSpec:
        if self.port == names.METRICS_PORT:
            raise problem(
                f"{self.port} is the dispatcher's port for metrics: use another port, for example "
                f"{names.DISPATCHER_PORT}",
                "port",
            )
        return self


class SidecarSpec(Section):
    """The process beside each trainer that fetches the trainer's rows."""

    model_config = cel(
        (
            "!has(self.resources) || !has(self.resources.limits) || "
            "!('memory' in self.resources.limits) || "
            "quantity(string(self.resources.limits['memory'])).compareTo("
            "quantity(string(self.buffer)).add(quantity('128Mi'))) >= 0",
            "resources.limits.memory is too small for the buffer and the process: set it to "
            "at least buffer plus 128Mi, or remove it",
        )
    )

    buffer: Buffer = "256Mi"
    """Memory shared with the trainer for batches that are ready, from 1Mi to 1Ti. Default:
    256Mi."""
    read_ahead: Annotated[int, Field(ge=0, le=8)] | None = Field(default=None, examples=[1])
    """Number of splits that each partition opens before they are needed. Default: 1, and more while
    trainers wait for workers that could compute more splits, as far as the memory limit allows."""
    timeout_seconds: int = Field(default=600, ge=1, le=86400)
    """Seconds without data before the trainer gets an error. Iterating again resumes. Default:
    600."""
    transfer: Literal["Auto", "GRPC"] = "Auto"
    """How rows come from the workers. Auto: over a direct TCP connection to each worker, on the
    port after that of gRPC, and over gRPC where it cannot be reached. GRPC: over gRPC only.
    Default: Auto."""
    image: Image | None = None
    """Image of the sidecars. Default: the operator's image for sidecars."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU and memory of the sidecar's container. Default: requests of 250m CPU and of the buffer
    plus 128Mi memory."""

    @model_validator(mode="after")
    def _check_memory_limit(self) -> SidecarSpec:
        limit = self.resources.limits.get("memory")
        least = quantity_bytes(self.buffer) + SIDECAR_BYTES
        if limit is not None and quantity(limit) < quantity(self.buffer) + SIDECAR_BYTES:
            raise problem(
                f"{limit} is too small for buffer {self.buffer} and the process: set it to at "
                f"least {-(-least // MIB)}Mi, or remove it",
                "resources",
                "limits",
                "memory",
            )
        return self


class TrainersSpec(Section):
    """The cost of trainers that wait for rows. Used if an InputPolicy has budgets."""

    accelerator: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None, examples=["nvidia-h100"]
    )
    """Name of the trainers' accelerator in the InputPolicy's stallCosts. Default: cost 1."""
    accelerators_per_trainer: int = Field(default=1, ge=1, le=4096, examples=[8])
    """Number of accelerators per trainer. Default: 1."""
    weight: Weight = "1"
    """Factor that multiplies the cost of these trainers, from 1m to 1000: 500m is a half. Default:
    1."""
    priority_class: PriorityClassName | None = Field(default=None, examples=["release"])
    """Name of a class in priorityClasses of the InputPolicy. Default: none. If the InputPolicy has
    classes, an input without one has priority 0."""
    priority: int = Field(default=0, ge=-1000, le=1000)
    """Inputs with a higher priority get all workers that they need before other inputs get more
    than their minimum. It does not count if the InputPolicy has priorityClasses. Default: 0."""


class StoreSpec(Section):
    """The splits that workers keep once they have computed them."""

    size: Buffer = Field(default="10Gi", examples=["500Gi"])
    """Maximum size of the store, from 1Mi to 1Ti. Default: 10Gi."""
    claim_name: ObjectName | None = Field(default=None, examples=["stored-splits"])
    """PersistentVolumeClaim that all workers mount and write. `distributed-input run` has a folder
    of the user. Default: an emptyDir in each worker's pod, which ends with the pod."""


class TfDataServiceSpec(Section):
    """TensorFlow's own tf.data service in the pods of the input.

    `tfDataService: {}` enables it with all defaults. The service keeps its own limits: a lost
    worker loses elements, and its iterators cannot be checkpointed. It does not check a token, so
    only the input's NetworkPolicy restricts access to it.
    """

    port: int = Field(default=7080, ge=1024, le=65535)
    """Port that the tf.data service's dispatcher listens on. Default: 7080."""
    static_sharding: bool = False
    """Give the tf.data service's dispatcher a fixed list of workers. Required for ShardingPolicy
    FILE, DATA, FILE_OR_DATA and HINT, but not for OFF and DYNAMIC. The dispatcher starts when all
    workers.replicas are running, and restarts when a worker is replaced. Excludes
    workers.autoscaling. Default: false."""
    journal: Anything = Field(
        default={}, examples=[{"persistentVolumeClaim": {"claimName": "journal"}}]
    )
    """Volume of the dispatcher's journal, as in a pod's spec. Default: an emptyDir, which survives
    a restart of the container but not of the pod."""
    cross_trainer_cache: Buffer = "256Mi"
    """Memory of each cross-trainer cache in a worker, from 1Mi to 1Ti. Default: 256Mi."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU and memory of each container of the tf.data service. Default: requests of 250m CPU and
    512Mi memory, no limits."""
