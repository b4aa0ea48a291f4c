"""What a section can say of pods: resources, accelerators, where they run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import Quantity, Topology, problem

Objects = Annotated[
    list[dict[str, Any]],
    WithJsonSchema(
        {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        }
    ),
]
"""Kubernetes' own objects, as a pod's spec has them: the API server checks what is in them."""

Placement = Literal["anywhere", "near-trainers", "dedicated"]
AcceleratorType = Literal["nvidia", "gke-nvidia", "gke-tpu"]


class Resources(Section):
    """CPU, memory and the like, as a container has them."""

    requests: dict[str, Quantity] = Field(
        default={}, description="What is set aside.", examples=[{"cpu": "4", "memory": "8Gi"}]
    )
    limits: dict[str, Quantity] = Field(
        default={}, description="The most that it gets.", examples=[{"memory": "8Gi"}]
    )


class Accelerator(Section):
    """Accelerators for the input pipeline itself: decoding on GPUs, say."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.type != 'gke-tpu' || (has(self.product) && has(self.topology))",
                "type gke-tpu needs product and topology, such as `product: tpu-v5-lite-podslice` "
                "and `topology: 2x2`",
            ),
            (
                "self.type == 'gke-tpu' || !has(self.topology)",
                "topology is for type gke-tpu only: take it away",
            ),
        )
    )

    type: AcceleratorType = Field(
        description="nvidia: nodes labelled by NVIDIA's operator; gke-nvidia, gke-tpu: by GKE."
    )
    product: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None,
        description="The nodes' label: of nvidia.com/gpu.product, cloud.google.com/gke-accelerator "
        "or cloud.google.com/gke-tpu-accelerator. Left out: any GPU.",
        examples=["NVIDIA-L4"],
    )
    count: int = Field(default=1, ge=1, le=256, description="How many a worker gets.")
    topology: Topology | None = Field(default=None, description="Of a TPU slice.")

    @model_validator(mode="after")
    def _topology_is_for_tpus(self) -> Accelerator:
        if self.type != "gke-tpu" and self.topology:
            raise problem("is for type gke-tpu only: take it away", "topology")
        if self.type == "gke-tpu":
            for name, value, such in (
                ("product", self.product, "tpu-v5-lite-podslice"),
                ("topology", self.topology, "2x2"),
            ):
                if value is None:
                    raise problem(f"is missing: type gke-tpu needs one, such as {such!r}", name)
        return self
