"""The section `trainers`: the cost of waiting trainers, which decides how workers are shared."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from distributed_input.api.resource.base import Section
from distributed_input.api.resource.scalars import PriorityClassName


class TrainersSpec(Section):
    """The cost of trainers that wait for rows. Used if an InputPolicy has budgets."""

    accelerator: Annotated[str, Field(min_length=1, max_length=63)] | None = Field(
        default=None,
        description="Name of the trainers' accelerator in the InputPolicy's stallCosts. "
        "Default: cost 1.",
        examples=["nvidia-h100"],
    )
    accelerators_per_trainer: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="Number of accelerators per trainer. Default: 1.",
        examples=[8],
    )
    weight: float = Field(
        default=1.0,
        ge=0.001,
        le=1000,
        description="Factor that multiplies the cost of these trainers. Default: 1.",
    )
    priority_class: PriorityClassName | None = Field(
        default=None,
        description="Name of a class in priorityClasses of the InputPolicy. Default: none. If the "
        "InputPolicy has classes, an input without one has priority 0.",
        examples=["release"],
    )
    priority: int = Field(
        default=0,
        ge=-1000,
        le=1000,
        description="Inputs with a higher priority get all workers that they need before other "
        "inputs get more than their minimum. It does not count if the InputPolicy has "
        "priorityClasses. Default: 0.",
    )
