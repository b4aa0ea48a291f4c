"""The status of v1beta1: without measurements, except those in the columns of `kubectl get`."""

from __future__ import annotations

from pydantic import Field

from distributed_input.api.resource.base import StatusSection
from distributed_input.api.resource.status import (
    NOT_OBSERVED,
    AutoscalingStatus,
    Condition,
    DispatcherStatus,
    TfDataServiceStatus,
)


class BetaWorkersStatus(StatusSection):
    """The number of workers."""

    desired: int = Field(default=0, description="Number of workers that should run.")
    requested: int = Field(
        default=0, description="Number of workers that would run if budgets had no limits."
    )
    replicas: int = Field(default=0, description="Number of worker pods.")
    ready: int = Field(default=0, description="Number of workers that are ready.")
    summary: str = Field(default="", description="Ready and desired workers, as ready/desired.")


class TrainersStatus(StatusSection):
    """What the trainers read, rounded. Updated at most every 30 s."""

    reading: int = Field(default=0, description="Number of trainers that read.")
    rows_per_second: int = Field(default=0, description="Rows per second over all trainers.")
    stall: str = Field(default="", description="Share of time that trainers wait for input.")


class BetaStatus(StatusSection):
    """The observed state, written by the operator for users, `kubectl wait` and autoscalers."""

    observed_generation: int = Field(
        default=NOT_OBSERVED,
        description="Generation of the spec that the conditions are about: the API server has "
        "accepted or refused its objects. -1: none yet.",
    )
    conditions: list[Condition] = Field(
        default=[], description="Conditions, at most one of each type."
    )
    selector: str = Field(
        default="", description="Label selector of the worker pods, for `kubectl scale`."
    )
    workers: BetaWorkersStatus = Field(
        default=BetaWorkersStatus(), description="Number of workers."
    )
    trainers: TrainersStatus | None = Field(
        default=None, description="Trainers of the input. Set while trainers read."
    )
    dispatcher: DispatcherStatus = Field(
        default=DispatcherStatus(), description="Address of the dispatcher."
    )
    encryption: str = Field(
        default="",
        description="Encryption of the input: None, Control or All. The operator decides it "
        "once: the value of spec.encryption, or else what the input began with.",
    )
    tf_data_service: TfDataServiceStatus | None = Field(
        default=None,
        description="Address of the tf.data service. Set if the spec has tfDataService.",
    )
    autoscaling: AutoscalingStatus | None = Field(
        default=None,
        description="Latest decision of autoscaling. Set if the spec has autoscaling.",
    )
