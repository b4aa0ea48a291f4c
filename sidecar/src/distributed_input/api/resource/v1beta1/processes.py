"""The sections `sidecar` and `trainers` of v1beta1."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from distributed_input.api.resource.scalars import (
    ANY_QUANTITY,
    int_to_text,
    problem,
    quantity,
)
from distributed_input.api.resource.sections.processes import SidecarSpec
from distributed_input.api.resource.sections.trainers import TrainersSpec

_LEAST, _MOST = Decimal("0.001"), Decimal(1000)
_RANGE = "is out of range: use 1m to 1000, for example 500m"


def _check_weight(value: str) -> str:
    try:
        number = quantity(value)
    except ValueError as error:
        raise problem(str(error)) from None
    if not _LEAST <= number <= _MOST:
        raise problem(f"{value} {_RANGE}")
    return value


Weight = Annotated[
    str,
    BeforeValidator(int_to_text),
    AfterValidator(_check_weight),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": ANY_QUANTITY,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? 1 <= self && self <= 1000 : "
                    "quantity(self).compareTo(quantity('1m')) >= 0 && "
                    "quantity(self).compareTo(quantity('1000')) <= 0",
                    "message": _RANGE,
                }
            ],
            "examples": ["500m"],
        }
    ),
]


class BetaSidecar(SidecarSpec):
    """The process beside each trainer that fetches the trainer's rows."""

    transfer: Literal["Auto", "GRPC"] = Field(  # type: ignore[assignment] # other values
        default="Auto",
        description="How rows come from the workers. Auto: over a direct TCP connection to each "
        "worker, on the port after that of gRPC, and over gRPC where it cannot be reached. GRPC: "
        "over gRPC only. Default: Auto.",
    )


class BetaTrainers(TrainersSpec):
    """The cost of trainers that wait for rows. Used if an InputPolicy has budgets."""

    weight: Weight = Field(  # type: ignore[assignment] # a quantity
        default="1",
        description="Factor that multiplies the cost of these trainers, from 1m to 1000: 500m is a "
        "half. Default: 1.",
    )
