"""The model of a DistributedInput's status, which the operator writes."""

from __future__ import annotations

from pydantic import Field

from distributed_input.api.resource.base import StatusSection

NOT_OBSERVED = -1
"""The generation in the status of an input that the operator has not processed yet. Without it,
kstatus would report an input without a status as complete."""


class Condition(StatusSection):
    """A condition, as in the status of other Kubernetes objects."""

    type: str = Field(description="Type of the condition, for example Ready.")
    status: str = Field(description="True, False or Unknown.")
    observed_generation: int = Field(
        default=0, description="Generation of the spec that the condition is about."
    )
    last_transition_time: str = Field(default="", description="Time of the last status change.")
    reason: str = Field(default="", description="Reason for the status, as one CamelCase word.")
    message: str = Field(
        default="", description="Explanation for the user, with a remedy if there is a problem."
    )


class WorkersStatus(StatusSection):
    """The number of workers."""

    desired: int = Field(default=0, description="Number of workers that should run.")
    asked: int = Field(
        default=0, description="Number of workers that would run if budgets had no limits."
    )
    replicas: int = Field(default=0, description="Number of worker pods.")
    ready: int = Field(default=0, description="Number of workers that are ready.")
    summary: str = Field(default="", description="Ready and desired workers, as ready/desired.")


class LiveStatus(StatusSection):
    """The dispatcher's latest measurements, rounded. Updated at most every 30 s."""

    consumers: int = Field(default=0, description="Number of trainers that read.")
    epoch: int = Field(default=0, description="Latest epoch that a trainer reads.")
    rows_per_second: int = Field(default=0, description="Rows per second over all trainers.")
    stall: str = Field(default="", description="Share of time that trainers wait for input.")
    recommended_workers: int = Field(
        default=0,
        description="Number of workers that the trainers could keep busy. 0 if unknown.",
    )
    stalled: str = Field(
        default="",
        description="Split that has made no progress for the longest time, with its dataset and "
        "worker. Empty: none for more than 10 s.",
    )
    replay_mismatches: int = Field(
        default=0, description="Replays of splits that made other rows than before."
    )
    read_amplification: int = Field(
        default=0,
        description="Maximum number of times that an epoch reads every record, because splits "
        "select records after they were read. 0: once.",
    )
    observed_at: str = Field(default="", description="Time of this update.")


class AutoscalingStatus(StatusSection):
    """The latest decision of autoscaling."""

    desired: int = Field(default=0, description="Number of workers that should run.")
    fewer_since: str = Field(
        default="", description="Start of the period in which fewer workers have been enough."
    )
    fewer: int = Field(
        default=0, description="Maximum number of workers that was needed in that period."
    )
    idle_since: str = Field(
        default="", description="Start of the period in which no trainer has read."
    )
    unmeasured_since: str = Field(
        default="",
        description="Start of the period in which trainers have read, but without worker pods and "
        "without known rates.",
    )


class DispatcherStatus(StatusSection):
    """The address of the dispatcher."""

    address: str = Field(default="", description="Address as host:port, within the namespace.")


class TfDataServiceStatus(StatusSection):
    """The address of TensorFlow's own tf.data service."""

    address: str = Field(
        default="",
        description="Address as grpc://host:port, within the namespace. Pass it to "
        "tf.data.experimental.service.distribute.",
    )


class Status(StatusSection):
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
    workers: WorkersStatus = Field(default=WorkersStatus(), description="Number of workers.")
    dispatcher: DispatcherStatus = Field(
        default=DispatcherStatus(), description="Address of the dispatcher."
    )
    encryption: str = Field(
        default="",
        description="Encryption of the input: none, control or all. The operator decides it "
        "once: the value of spec.encryption, or else what the input began with.",
    )
    tf_data_service: TfDataServiceStatus | None = Field(
        default=None,
        description="Address of the tf.data service. Set if the spec has tfDataService.",
    )
    live: LiveStatus | None = Field(
        default=None, description="Latest measurements. Set while trainers read."
    )
    autoscaling: AutoscalingStatus | None = Field(
        default=None,
        description="Latest decision of autoscaling. Set if the spec has autoscaling.",
    )
