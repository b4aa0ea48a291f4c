"""The sections `sidecar` and `trainers` of v1beta1."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from distributed_input.api.resource.sections.processes import SidecarSpec
from distributed_input.api.resource.sections.trainers import TrainersSpec
from distributed_input.api.resource.v1beta1.quantities import Weight


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
