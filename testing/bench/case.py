"""What is measured: a workload in one setting, on several systems."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

REPO = Path(__file__).resolve().parents[2]

LOCAL = "tf.data in the trainer"
SERVICE = "tf.data service, no compression"
SERVICE_AUTO = "tf.data service, AUTO compression"
OURS = "DistributedInput"
SYSTEMS = (LOCAL, SERVICE_AUTO, SERVICE, OURS)
SHORT = {"local": LOCAL, "service-auto": SERVICE_AUTO, "service": SERVICE, "ours": OURS}
"""For the command line."""


@dataclass(frozen=True)
class Case:
    """A workload in one setting.

    The dataset is endless, so that what is measured is the flow and not its start.
    """

    family: str
    name: str
    target: str
    """The dataset function, module:function; every system runs this one."""
    args: Mapping[str, Any]
    workers: int = 1
    systems: tuple[str, ...] = SYSTEMS
    service_args: Mapping[str, Any] = field(default_factory=dict)
    """More arguments, for tf.data service alone."""
    partitions: int | None = None
    """Ours: None takes the default."""
    parallelism: int | None = None
    """Ours, rows that a worker computes at once: None takes the default."""
    sharding: str = "OFF"
    """tf.data service: its ShardingPolicy."""
    unit: str = "GB"
    """What CPU time is counted per: GB (1e9 bytes) or krows (1,000 rows)."""

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.family}: {self.name}, {self.workers} worker{'s' * (self.workers > 1)}"


@dataclass(frozen=True)
class Beside:
    """What a trainer finds when it starts: the system's processes and how to reach them."""

    options: Mapping[str, Any]
    """For the trainer: how to make its dataset."""
    pids: Mapping[str, list[int]]
    """Processes by role: dispatcher, worker, sidecar."""
    env: Mapping[str, str] = field(default_factory=dict)


class System(Protocol):
    """A system whose servers are up."""

    def beside(self) -> AbstractContextManager[Beside]:
        """What belongs to one trainer; entered anew for each."""


def only(
    cases: Iterable[Case], systems: Collection[str], workers: Collection[int]
) -> Iterator[Case]:
    """The cases with no other systems than these; of no other numbers of workers, if any."""
    for case in cases:
        left = tuple(system for system in case.systems if system in systems)
        if left and (not workers or case.workers in workers):
            yield replace(case, systems=left)
