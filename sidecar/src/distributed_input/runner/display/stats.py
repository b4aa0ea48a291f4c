"""Totals and rates from samples of the dispatchers' status: pure, with `now` as an argument.

Trainers and workers count from their start, so a total is a sum over starts. A restarted worker has
a new worker_id, and a restarted trainer a new name. What a worker did after its last heartbeat is
lost if it is killed. A trainer continues to count when its sidecar is restarted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.api.stalls import KILLED, failure_text, stall_text

WINDOW_SECONDS = 6.0
"""Window of the rates. It covers several heartbeats, which makes the rates steady."""


Consumer = dispatcher_pb2.ConsumerHeartbeatRequest
"""One consumer of one job, at its last heartbeat. Counts are those of its trainer, if it reports
them. `received.trainer` names the process that counts; empty: it is the sidecar."""
Worker = dispatcher_pb2.WorkerInfo
"""One start of a worker, at its last heartbeat."""


def consumer_name(one: Consumer) -> str:
    """Return its job and its index."""
    return f"{one.job or '-'}/{one.index}"


def stalled_splits(one: Worker) -> list[str]:
    """Return the splits of a worker that make no progress, each as text."""
    return [stall_text(split) for split in one.stalled if split.crash != KILLED]


def dataset_failure(one: Worker) -> str:
    """Return the last error of its dataset as text. Empty: none in the last minutes."""
    return failure_text(one.failure) if one.HasField("failure") else ""


@dataclass(frozen=True)
class HostCpus:
    """Counters of the CPUs that this process may run on, in seconds since the machine started."""

    used: float
    total: float

    def busy_since(self, earlier: HostCpus) -> float:
        """Return the share of the CPUs that was in use since an earlier reading, 0 to 1.

        The load average of the system is no such measure: it still has what ended a minute ago.
        """
        used = max(0.0, self.used - earlier.used)  # a difference of sums, which may be below 0
        return used / max(0.01, self.total - earlier.total)


@dataclass(frozen=True)
class StatusSample:
    """One response of a dispatcher to a Status call."""

    consumers: Sequence[Consumer] = ()
    workers: Sequence[Worker] = ()
    jobs: Sequence[types_pb2.Job] = ()
    skipped: Sequence[types_pb2.SkippedRecord] = ()
    """The last records that splits left out."""
    skipped_records: int = 0
    """Number of all records that splits left out."""
    host: HostCpus | None = None
    """CPUs of this machine, if all processes of the input run on it."""

    @property
    def whole(self) -> list[str]:
        """The jobs whose rows are whole elements of the dataset: no batch size is known."""
        return [job.name for job in self.jobs if not job.global_batch_size]


@dataclass(frozen=True)
class TrainerWindow:
    """What one trainer did between two samples. Its own clock gives the time: heartbeats vary."""

    rows: int
    wall: float
    waits: float | None
    """Share of its time that it waited, 0 to 1. None: unknown."""

    @property
    def rate(self) -> float | None:
        """Rows per second that it read."""
        return self.rows / self.wall if self.wall > 0 else None


def trainer_window(before: StatusSample, now: Consumer) -> TrainerWindow:
    """Return what a trainer did since an earlier sample, or since its start if that is later."""
    process = (now.job, now.index, now.received.trainer)
    then = Consumer()
    for one in before.consumers:
        is_same = (one.job, one.index, one.received.trainer) == process
        # Lower counts mean that it has opened the job again.
        if is_same and one.wall_seconds <= now.wall_seconds and one.rows <= now.rows:
            then = one
    wall = now.wall_seconds - then.wall_seconds
    waited = max(0.0, now.wait_seconds - then.wait_seconds)
    return TrainerWindow(now.rows - then.rows, wall, min(1.0, waited / wall) if wall > 0 else None)


class SourceWindow(NamedTuple):
    """What the steps of all trainers took of a source of a mixture between two samples."""

    source: str
    rows: int
    wait_seconds: float
    """Time that they waited for its rows, summed over the trainers."""


def source_windows(before: StatusSample, after: StatusSample) -> dict[str, list[SourceWindow]]:
    """Return what the trainers of each mixture took since an earlier sample, by job and source.

    Sidecars count from their start. If it is later than the earlier sample, all counts.
    """
    earlier = {
        (one.job, one.index, one.incarnation, source.source): source
        for one in before.consumers
        for source in one.sources
    }
    found: dict[str, dict[str, SourceWindow]] = {}
    for one in after.consumers:
        for now in one.sources:
            key = one.job, one.index, one.incarnation, now.source
            then = earlier.get(key, types_pb2.SourceTotals())
            of_job = found.setdefault(one.job, {})
            other = of_job.get(now.source, SourceWindow(now.source, 0, 0.0))
            of_job[now.source] = SourceWindow(
                now.source,
                other.rows + now.rows - then.rows,
                other.wait_seconds + now.wait_seconds - then.wait_seconds,
            )
    return {job: list(sources.values()) for job, sources in found.items()}


@dataclass(frozen=True)
class Totals:
    """Totals of one input. `wait` and `wall` are sums over its consumers, in seconds."""

    epochs: int = 0
    """Number of epochs that were started: the maximum over the consumers."""
    rows: int = 0
    batches: int = 0
    wait: float = 0.0
    wall: float = 0.0
    mismatches: int = 0

    @property
    def stall(self) -> float:
        """Share of the time that the trainers waited for input, 0 to 1."""
        return min(1.0, self.wait / self.wall) if self.wall > 0 else 0.0


@dataclass(frozen=True)
class Rates:
    """Rates of one input over the last WINDOW_SECONDS."""

    rows: float = 0.0
    batches: float = 0.0
    stall: float | None = None
    """None: no consumer was iterating."""


@dataclass
class InputStats:
    """The samples of one input. `add` adds a sample."""

    consumers: dict[tuple[str, int, str], list[Consumer]] = field(default_factory=dict)
    """By job, index and trainer, or else incarnation: the last sample of each of its readers."""
    mismatches: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """By job, index and incarnation."""
    workers: dict[str, Worker] = field(default_factory=dict)
    last: StatusSample = field(default_factory=StatusSample)
    """The last sample; empty while the dispatcher is not reachable."""
    is_reachable: bool = False
    """Whether the dispatcher answered the last call."""
    answered: bool = False
    """At least one sample was added."""
    warnings: list[str] = field(default_factory=list)
    """All warnings about its jobs, each once."""
    row: str = "row"
    """What a row is: "element" if it is a whole element of the dataset, perhaps of many rows."""
    _window: deque[tuple[float, Totals]] = field(default_factory=deque)

    def add(self, status: StatusSample | None, now: float) -> None:
        """Add a sample, or None if the call failed."""
        self.last, self.is_reachable = status or StatusSample(), status is not None
        if status is None:
            return
        self.answered = True
        for consumer in status.consumers:
            job, index, incarnation = consumer.job, consumer.index, consumer.incarnation
            self.mismatches[job, index, incarnation] = consumer.replay_mismatches
            key = job, index, consumer.received.trainer or incarnation
            readers = self.consumers.setdefault(key, [consumer])
            # Lower counts mean that the trainer closed its reader and perhaps opened another.
            if (consumer.rows, consumer.batches) < (readers[-1].rows, readers[-1].batches):
                readers.append(consumer)
            readers[-1] = consumer
        for worker in status.workers:
            self.workers[worker.worker_id] = worker
        if status.jobs:
            self.row = "element" if len(status.whole) == len(status.jobs) else "row"
        for text in [text for job in status.jobs for text in job.warnings]:
            if text not in self.warnings:
                self.warnings.append(text)
        self._window.append((now, self.totals()))
        while len(self._window) > 2 and self._window[1][0] <= now - WINDOW_SECONDS:
            self._window.popleft()

    def totals(self) -> Totals:
        """Return the sums over all consumers and their starts."""
        seen = [consumer for readers in self.consumers.values() for consumer in readers]
        return Totals(
            epochs=max((c.epoch + 1 for c in seen if c.batches or c.wall_seconds), default=0),
            rows=sum(c.rows for c in seen),
            batches=sum(c.batches for c in seen),
            wait=sum(c.wait_seconds for c in seen),
            wall=sum(c.wall_seconds for c in seen),
            mismatches=sum(self.mismatches.values()),
        )

    def rates(self) -> Rates:
        """Return the rates over the window."""
        if len(self._window) < 2:
            return Rates()
        (then, before), (now, after) = self._window[0], self._window[-1]
        seconds = max(now - then, 1e-3)
        wall = after.wall - before.wall
        return Rates(
            rows=(after.rows - before.rows) / seconds,
            batches=(after.batches - before.batches) / seconds,
            stall=min(1.0, max(0.0, (after.wait - before.wait) / wall)) if wall > 0 else None,
        )

    @property
    def buffer(self) -> float:
        """Mean fill of the buffers of unfinished consumers, 0 to 1."""
        live = [c.buffer_fill for c in self.last.consumers if not c.finished]
        return sum(live) / len(live) if live else 0.0

    @property
    def ready_workers(self) -> int:
        """Number of workers that accept streams."""
        return sum(not w.draining for w in self.last.workers)

    @property
    def stalled(self) -> Sequence[str]:
        """Splits that make no progress, each as text; those of all workers."""
        return [text for w in self.last.workers for text in stalled_splits(w)]

    def waiting_for(self, desired_workers: int) -> str:
        """Return what the input waits for; "" while rows are delivered."""
        if not self.is_reachable:
            return "dispatcher"
        if self.rates().rows > 0:
            return ""
        named = sorted({c.waiting_for for c in self.last.consumers if c.waiting_for})
        if named:
            return ", ".join(named)
        if desired_workers and not self.ready_workers:
            return "worker"
        if not self.last.consumers:
            return "trainer to connect, or its dataset to be described"
        return "" if self.totals().rows else "first rows"


def rows_by_address(stats: InputStats) -> Mapping[str, tuple[int, float]]:
    """Return (rows, busy seconds) by address, summed over the workers at the address."""
    found: dict[str, tuple[int, float]] = {}
    for worker in stats.workers.values():
        rows, busy = found.get(worker.address, (0, 0.0))
        found[worker.address] = (rows + worker.rows, busy + worker.busy_seconds)
    return found
