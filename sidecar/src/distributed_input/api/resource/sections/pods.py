"""Settings of pods that several sections share: resources and accelerators."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import Quantity, Topology, problem

_OBJECTS = WithJsonSchema(
    {
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
)
Objects = Annotated[list[dict[str, Any]], _OBJECTS]
"""A list of objects from a pod's spec. The API server checks their content with the pod."""


def _check_variable(variable: dict[str, Any]) -> dict[str, Any]:
    value = variable.get("value")
    if value is not None and not isinstance(value, str):
        raise problem(f"{json.dumps(value)} is not a text: add quotes", "value")
    return variable


Variables = Annotated[list[Annotated[dict[str, Any], AfterValidator(_check_variable)]], _OBJECTS]
"""Environment variables of a container. The API server refuses a pod with a value such as `3`."""

_VOLUMES = {
    "persistentVolumeClaim": "claimName",
    "configMap": "name",
    "secret": "secretName",
    "hostPath": "path",
}
"""Kinds of volumes, and the field that names what they read."""


def _check_volume(volume: dict[str, Any]) -> dict[str, Any]:
    for kind, value in volume.items():
        if kind == "name" or isinstance(value, dict):
            continue
        field = _VOLUMES.get(kind)
        fix = f"write {{{field}: {value}}}" if field else "write its fields, or {} for the defaults"
        raise problem(f"{json.dumps(value)} is not a mapping: {fix}", kind)
    return volume


Volumes = Annotated[list[Annotated[dict[str, Any], AfterValidator(_check_volume)]], _OBJECTS]
"""Volumes of a pod. The API server refuses a pod with `persistentVolumeClaim: digits`."""

Placement = Literal["anywhere", "near-trainers", "dedicated"]
AcceleratorType = Literal["nvidia", "gke-nvidia", "gke-tpu"]

_TPU_EXAMPLES = {"product": "tpu-v5-lite-podslice", "topology": "2x2"}


class ResourceRequirements(Section):
    """CPU, memory and other resources of a container."""

    requests: dict[str, Quantity] = Field(
        default={},
        description="Resources that the scheduler reserves on the node.",
        examples=[{"cpu": "4", "memory": "8Gi"}],
    )
    limits: dict[str, Quantity] = Field(
        default={},
        description="Maximum resources that the container can use.",
        examples=[{"memory": "8Gi"}],
    )


class AcceleratorSpec(Section):
    """Accelerators of each worker, for example to decode images on GPUs."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.type != 'gke-tpu' || (has(self.product) && has(self.topology))",
                "type gke-tpu needs product and topology: add both, for example `product: "
                "tpu-v5-lite-podslice` and `topology: 2x2`",
            ),
            (
                "self.type == 'gke-tpu' || !has(self.topology)",
                "topology is only for type gke-tpu: remove it",
            ),
        )
    )

    type: AcceleratorType = Field(
        description="Kind of accelerator, and who labels its nodes. nvidia: GPUs, labelled by "
        "NVIDIA's operator. gke-nvidia and gke-tpu: GPUs and TPUs, labelled by GKE. Required."
    )
    product: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None,
        description="Value of the nodes' label nvidia.com/gpu.product, "
        "cloud.google.com/gke-accelerator or cloud.google.com/gke-tpu-accelerator. Required for "
        "gke-tpu. Default: any GPU.",
        examples=["NVIDIA-L4"],
    )
    count: int = Field(
        default=1, ge=1, le=256, description="Number of accelerators per worker. Default: 1."
    )
    topology: Topology | None = Field(
        default=None,
        description="Topology of the TPU slice. Required for gke-tpu; not allowed otherwise.",
    )

    @model_validator(mode="after")
    def _check_topology(self) -> AcceleratorSpec:
        if self.type != "gke-tpu" and self.topology:
            raise problem("is only for type gke-tpu: remove it", "topology")
        if self.type == "gke-tpu":
            for name, example in _TPU_EXAMPLES.items():
                if getattr(self, name) is None:
                    raise problem(
                        f"is missing: type gke-tpu needs it, for example {example!r}", name
                    )
        return self
