"""The share of a sidecar's streams that the worker of its own pod gets. Pure.

All streams of a job deliver rows at the same rate on average, because each step takes the same
number of rows from every partition. So a worker that can produce half of the rows that the trainer
takes can serve half of the streams. With more, all streams would wait for it. With fewer, rows
would come from other workers although the trainer's CPUs are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from distributed_input.api.local_workers import PLANNED_SHARE

_WINDOW_SECONDS = 10.0
_MIN_RUNNING_SHARE = 0.01  # of a trainer's time; keeps its demand finite


@dataclass(frozen=True)
class WorkerCounters:
    """Counters of the pod's own worker since it started.

    Attributes:
        rows: rows sent.
        busy_seconds: time of all CPUs that were in use.
    """

    rows: int
    busy_seconds: float


@dataclass(frozen=True)
class LocalSample:
    """Counters of one job at one time.

    Attributes:
        time: monotonic time in seconds.
        rows: rows that the trainer has received.
        wait_seconds: time that the trainer has waited for them.
        wall_seconds: time since its first batch.
        workers: counters of the pod's own workers, by id.
    """

    time: float
    rows: int
    wait_seconds: float
    wall_seconds: float
    workers: Mapping[str, WorkerCounters]


@dataclass(frozen=True)
class LocalShare:
    """What is known of the trainer's demand and of its own worker's rate.

    Attributes:
        demand: rows per second that the trainer would take if it never waited. None: unknown.
        rate: rows per second that one CPU of the own worker produces. None: unknown.
        samples: samples of the last seconds, latest last.
    """

    demand: float | None = None
    rate: float | None = None
    samples: tuple[LocalSample, ...] = field(default=(), repr=False)

    def add(self, sample: LocalSample) -> LocalShare:
        """Return the values with one more sample. A value that it does not measure stays."""
        oldest = sample.time - _WINDOW_SECONDS
        kept = tuple(one for one in self.samples if one.time >= oldest) or self.samples[-1:]
        if not kept:
            return replace(self, samples=(sample,))
        demand, rate = _demand(kept[0], sample), _rate(kept[0], sample)
        return LocalShare(
            self.demand if demand is None else demand,
            self.rate if rate is None else rate,
            (*kept, sample),
        )

    def share(self, own_cpus: float, other_cpus: float) -> float:
        """Return the share of the streams that the own worker gets, from 0 to 1.

        Laws: it does not decrease with `own_cpus`. It is 1 if there are no other CPUs. While the
        rates are unknown, it is the own worker's share of all CPUs.

        Args:
            own_cpus: number of elements that the own worker may compute at the same time now.
            other_cpus: this consumer's part of the CPUs of all other workers.
        """
        if other_cpus <= 0:
            return 1.0
        if not self.demand or not self.rate:
            return own_cpus / (own_cpus + other_cpus)
        return min(1.0, PLANNED_SHARE * own_cpus * self.rate / self.demand)


def _demand(before: LocalSample, after: LocalSample) -> float | None:
    rows, wall = after.rows - before.rows, after.wall_seconds - before.wall_seconds
    if rows <= 0 or wall <= 0:
        return None  # the trainer has paused, or its sidecar counts again from 0
    running = wall - (after.wait_seconds - before.wait_seconds)
    return rows / max(running, _MIN_RUNNING_SHARE * wall)


def _rate(before: LocalSample, after: LocalSample) -> float | None:
    rows, busy = 0, 0.0
    for worker, now in after.workers.items():
        then = before.workers.get(worker, WorkerCounters(0, 0.0))
        rows, busy = rows + now.rows - then.rows, busy + now.busy_seconds - then.busy_seconds
    return rows / busy if rows > 0 and busy > 0 else None
