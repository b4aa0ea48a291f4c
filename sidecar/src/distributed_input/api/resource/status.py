"""What the operator says of an input: the `status` of the resource, and its schema."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class _Part(BaseModel):
    # Not strict, no field refused: an older or newer operator may have written it.
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


class Condition(_Part):
    """As on every Kubernetes object."""

    type: str = Field(description="What it says something about.")
    status: str = Field(description="True, False or Unknown.")
    observed_generation: int = Field(default=0, description="Of the spec that it speaks of.")
    last_transition_time: str = Field(default="", description="When `status` last changed.")
    reason: str = Field(default="", description="In one word.")
    message: str = Field(default="", description="For people, with what to do about it.")


class WorkersStatus(_Part):
    """The workers that there are."""

    desired: int = Field(default=0, description="How many there should be.")
    asked: int = Field(
        default=0, description="How many there would be, were there room in all budgets."
    )
    replicas: int = Field(default=0, description="How many pods there are.")
    ready: int = Field(default=0, description="How many of them serve.")
    summary: str = Field(default="", description="ready/desired.")


class LiveStatus(_Part):
    """What the dispatcher last said; rounded, and written every 30 s at most."""

    consumers: int = Field(default=0, description="Trainers that read.")
    epoch: int = Field(default=0, description="The latest that one of them reads.")
    rows_per_second: int = Field(default=0, description="Over all trainers.")
    stall: str = Field(default="", description="Share of the time that trainers wait for input.")
    recommended_workers: int = Field(
        default=0, description="Workers that the trainers could keep busy; 0: not known."
    )
    observed_at: str = Field(default="", description="When this was written.")


class AutoscalingStatus(_Part):
    """What autoscaling has decided."""

    desired: int = Field(default=0, description="How many workers.")
    fewer_since: str = Field(default="", description="Since when fewer would have done.")
    fewer: int = Field(default=0, description="The most that were wanted since then.")
    idle_since: str = Field(default="", description="Since when no trainer reads.")


class DispatcherStatus(_Part):
    """Where the dispatcher is."""

    address: str = Field(default="", description="host:port, within the namespace.")


class TfDataServiceStatus(_Part):
    """Where TensorFlow's own tf.data service is."""

    address: str = Field(
        default="", description="grpc://host:port, within the namespace: what `distribute` takes."
    )


class Status(_Part):
    """Written by the operator, read by people, `kubectl wait` and autoscalers."""

    observed_generation: int = Field(default=0, description="Of the spec that was worked on last.")
    conditions: list[Condition] = Field(default=[], description="By type, each at most once.")
    selector: str = Field(default="", description="Selects the workers' pods; for `kubectl scale`.")
    workers: WorkersStatus = Field(default=WorkersStatus(), description="What runs.")
    dispatcher: DispatcherStatus = Field(default=DispatcherStatus(), description="Where it is.")
    tf_data_service: TfDataServiceStatus | None = Field(
        default=None, description="Where the spec has tfDataService."
    )
    live: LiveStatus | None = Field(default=None, description="How it goes, while trainers read.")
    autoscaling: AutoscalingStatus | None = Field(
        default=None, description="Where the spec has autoscaling."
    )
