"""The trainers' section: what it costs when they wait, for a cluster that cannot serve all."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from distributed_input.api.resource.base import Section


class Trainers(Section):
    """What waits when this input has too few workers: counts where an InputPolicy has budgets."""

    accelerator: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None,
        description="Their accelerators, by a name of the InputPolicy's stallCosts. Left out: such "
        "that cost 1.",
        examples=["nvidia-h100"],
    )
    accelerators_per_trainer: int = Field(
        default=1, ge=1, le=4096, description="How many wait with each trainer.", examples=[8]
    )
    weight: float = Field(
        default=1.0, ge=0.001, le=1000, description="Their waiting costs so many times as much."
    )
    priority: int = Field(
        default=0,
        ge=-1000,
        le=1000,
        description="Inputs of a higher priority get all that they need before others get more "
        "than their minimum.",
    )
