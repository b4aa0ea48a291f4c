"""What is known of one input at one moment: all that a plan is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.policy import NOTHING, Amount
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measured
from distributed_input_operator.autoscaling.scaling import State

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""
Key = tuple[str, str]
"""Kind and name of an object in the input's namespace."""


@dataclass(frozen=True)
class Settings:
    """What the operator was started with, as far as plans depend on it."""

    worker_image: str
    sidecar_image: str
    """Of sidecars and dispatchers."""
    namespace: str = "distributed-input"
    """Where the operator runs: its calls to dispatchers come from there."""
    pull_policy: str = ""
    """Of the images that are the operator's choice; empty: Kubernetes' own default."""
    pull_secrets: tuple[str, ...] = ()
    """Secrets of each input's namespace that its dispatcher and workers are pulled with."""


@dataclass(frozen=True)
class Pod:
    """One pod of the input."""

    name: str
    component: str
    """dispatcher or worker"""
    ip: str = ""
    created: str = ""
    """RFC 3339"""
    ready: bool = False
    terminating: bool = False
    ended: bool = False
    """It takes nothing any more."""
    deletion_cost: int | None = None
    unschedulable: str = ""
    """The scheduler's words, where it found no node."""
    failing: str = ""
    """The last words of a container that ends again and again, or an image that cannot be had."""
    takes: Amount = NOTHING
    """Of budgets."""


@dataclass(frozen=True)
class Failure:
    """Something that was refused or is missing."""

    reason: str
    """One word."""
    message: str
    """What, in the words of who refused it, and the remedy."""
    passing: bool = False
    """It may pass without anyone's help: it is tried again."""


@dataclass(frozen=True)
class Snapshot:
    """One input, its children and what its dispatcher said."""

    resource: DistributedInput
    status: Status
    """As it was last written."""
    settings: Settings
    objects: Mapping[Key, Manifest]
    """The children that there are."""
    pods: tuple[Pod, ...] = ()
    code: str = ""
    """Changes with the ConfigMap of the entry point's code; empty where there is none."""
    missing: tuple[Failure, ...] = ()
    """What the input refers to and is not there."""
    measured: Measured | None = None
    """None: the dispatcher has not said enough yet."""
    scaled: State | None = None
    """What autoscaling left last, which the status has only every 30 s; None: as in the status."""

    @property
    def name(self) -> str:
        """The input's name."""
        return self.resource.metadata.name

    @property
    def young(self) -> bool:
        """Whether no child was created yet: none is known, and no status was written."""
        return not self.objects and not self.status.observed_generation

    def live(self, kind: str, name: str) -> Manifest:
        """A child as it is; empty where it is not there."""
        return self.objects.get((kind, name), {})

    def of(self, component: str) -> tuple[Pod, ...]:
        """The pods of one component that are not on their way out."""
        return tuple(p for p in self.pods if p.component == component and not p.terminating)
