"""The status of the resources, which the operator writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema

from distributed_input.api.resource.base import StatusSection, list_map

NOT_OBSERVED = -1
"""The generation in the status of an input that the operator has not processed yet. Without it,
kstatus would report an input without a status as complete."""

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""A time as in RFC 3339."""


class Condition(StatusSection):
    """A condition, with the fields and the limits of metav1.Condition."""

    type: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
            max_length=316,
        ),
    ]
    """Type of the condition, for example Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: int = Field(default=0, ge=0)
    """Generation of the spec that the condition is about."""
    last_transition_time: Time
    """Time of the last status change."""
    reason: Annotated[
        str, Field(pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", max_length=1024)
    ]
    """Reason for the status, as one CamelCase word."""
    message: Annotated[str, Field(max_length=32768)]
    """Explanation for the user, with a remedy if there is a problem."""


Conditions = Annotated[list[Condition], Field(json_schema_extra=list_map("type"))]


class WorkersStatus(StatusSection):
    """The number of workers."""

    desired: int = 0
    """Number of workers that should run."""
    requested: int = 0
    """Number of workers that would run if budgets had no limits."""
    replicas: int = 0
    """Number of worker pods."""
    ready: int = 0
    """Number of workers that are ready."""
    summary: str = ""
    """Ready and desired workers, as ready/desired."""


class TrainersStatus(StatusSection):
    """What the trainers read, rounded. Updated at most every 30 s."""

    reading: int = 0
    """Number of trainers that read."""
    rows_per_second: int = 0
    """Rows per second over all trainers."""
    stall: str = ""
    """Share of time that trainers wait for input."""
    stalled_split: str = ""
    """Split that has made no progress for the longest time, with its dataset and worker. Empty:
    none for more than 10 s."""
    replay_mismatches: int = 0
    """Replays of splits that made other rows than before."""
    read_amplification: int = 0
    """Maximum number of times that an epoch reads every record, because splits select records after
    they were read. 0: once."""
    observed_at: Time | None = None
    """Time of this update."""


class BadRecordsStatus(StatusSection):
    """The records that splits left out (`spec.badRecords`). Updated at most every 30 s."""

    skipped: int = 0
    """Number of records since the dispatcher started, each once for each epoch."""
    last: str = ""
    """The last one: dataset, index, file, epoch, split, and the first line of the error."""


class AutoscalingStatus(StatusSection):
    """What the next decision of autoscaling depends on, besides `workers.requested`."""

    fewer_since: Time | None = None
    """Start of the period in which fewer workers have been enough."""
    fewer: int = 0
    """Maximum number of workers that was needed in that period."""
    idle_since: Time | None = None
    """Start of the period in which no trainer has read."""
    unmeasured_since: Time | None = None
    """Start of the period in which trainers have read, but without worker pods and without known
    rates."""


class DispatcherStatus(StatusSection):
    """The address of the dispatcher."""

    address: str = ""
    """Address as host:port, within the namespace."""


class TfDataServiceStatus(StatusSection):
    """The address of TensorFlow's own tf.data service."""

    address: str = ""
    """Address as grpc://host:port, within the namespace. Pass it to
    tf.data.experimental.service.distribute."""


class Status(StatusSection):
    """The observed state, written by the operator for users, `kubectl wait` and autoscalers."""

    observed_generation: int = NOT_OBSERVED
    """Generation of the spec that the conditions are about: the API server has accepted or refused
    its objects. -1: none yet."""
    conditions: Conditions = Field(default=[])
    """Conditions, at most one of each type."""
    selector: str = ""
    """Label selector of the worker pods, for `kubectl scale`."""
    workers: WorkersStatus = WorkersStatus()
    """Number of workers."""
    trainers: TrainersStatus | None = None
    """Trainers of the input. Set while trainers read."""
    bad_records: BadRecordsStatus | None = None
    """Records that splits left out. Set if there are any."""
    dispatcher: DispatcherStatus = DispatcherStatus()
    """Address of the dispatcher."""
    tf_data_service: TfDataServiceStatus | None = None
    """Address of the tf.data service. Set if the spec has tfDataService."""
    autoscaling: AutoscalingStatus | None = None
    """State of autoscaling. Set if the number of workers may change later."""


class BudgetStatus(StatusSection):
    """The use of a budget."""

    name: str
    """Name of the budget."""
    inputs: int = 0
    """Number of inputs in the budget."""
    workers: int = 0
    """Number of worker pods, including those that are stopping."""
    requested: int = 0
    """Number of workers that the inputs request."""
    resources: dict[str, str] = Field(default={})
    """Requests of dispatchers and workers: CPU, memory, and the other resources that budgets
    limit."""


class PolicyStatus(StatusSection):
    """The observed state, written by the operator at most every 30 s."""

    observed_generation: int = 0
    """Generation of the spec that the conditions are about."""
    conditions: Conditions = Field(default=[])
    """Conditions, at most one of each type. Ready: the spec is in effect. If it cannot be used, the
    message has the reason, and the last valid one stays in effect."""
    summary: str = ""
    """Worker pods of each budget, as name workers/limit."""
    budgets: list[BudgetStatus] = Field(default=[])
    """Use of each budget, in the order of the spec."""
    observed_at: Time | None = None
    """Time of this update."""
