"""The sections `dispatcher` and `sidecar`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api import names
from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import (
    MIB,
    Buffer,
    Image,
    ObjectName,
    problem,
    quantity,
    quantity_bytes,
)
from distributed_input.api.resource.sections.pods import Objects, ResourceRequirements
from distributed_input.api.sidecar_memory import PROCESS_BYTES

SIDECAR_BYTES = PROCESS_BYTES
"""Memory that a sidecar needs in addition to its buffer."""


class DispatcherSpec(Section):
    """The process that registers workers and trainers, and assigns splits to workers."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                f"!has(self.port) || self.port != {names.METRICS_PORT}",
                f"port {names.METRICS_PORT} is the dispatcher's port for metrics: use another port",
            )
        )
    )

    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description="Port that the dispatcher's process listens on. In a cluster, its Service "
        "always has port 7070. Default: 7070 in a cluster; a free port with "
        "`distributed-input run`.",
        examples=[7070],
    )
    resources: ResourceRequirements = Field(
        default=ResourceRequirements(),
        description="CPU and memory of the dispatcher's container. Default: requests of 100m CPU "
        "and 128Mi memory, no limits.",
    )
    node_selector: dict[str, str] = Field(
        default={},
        description="Node selector of the dispatcher's pod, as in a pod's spec. Default: none.",
    )
    tolerations: Objects = Field(
        default=[],
        description="Tolerations of the dispatcher's pod, as in a pod's spec. Default: none.",
    )
    priority_class_name: ObjectName | None = Field(
        default=None,
        description="PriorityClass of the dispatcher's pod. Default: the cluster's default.",
    )

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

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "!has(self.resources) || !has(self.resources.limits) || "
                "!('memory' in self.resources.limits) || "
                "quantity(string(self.resources.limits['memory'])).compareTo("
                "quantity(string(self.buffer)).add(quantity('128Mi'))) >= 0",
                "resources.limits.memory is too small for the buffer and the process: set it to "
                "at least buffer plus 128Mi, or remove it",
            )
        )
    )

    buffer: Buffer = Field(
        default="256Mi",
        description="Memory shared with the trainer for batches that are ready, from 1Mi to 1Ti. "
        "Default: 256Mi.",
    )
    read_ahead: Annotated[int, Field(ge=0, le=8)] | None = Field(
        default=None,
        description="Number of splits that each partition opens before they are needed. Default: "
        "1, and more while trainers wait for workers that could compute more splits, as far as the "
        "memory limit allows.",
        examples=[1],
    )
    timeout_seconds: int = Field(
        default=600,
        ge=1,
        le=86400,
        description="Seconds without data before the trainer gets an error. Iterating again "
        "resumes. Default: 600.",
    )
    transfer: Literal["auto", "grpc"] = Field(
        default="auto",
        description="How rows come from the workers. auto: over a direct TCP connection to each "
        "worker, on the port after that of gRPC, and over gRPC where it cannot be reached. grpc: "
        "over gRPC only. Default: auto.",
    )
    image: Image | None = Field(
        default=None,
        description="Image of the sidecars and the dispatcher. Default: the operator's image for "
        "sidecars.",
    )
    resources: ResourceRequirements = Field(
        default=ResourceRequirements(),
        description="CPU and memory of the sidecar's container. Default: requests of 250m CPU and "
        "of the buffer plus 128Mi memory.",
    )

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
