"""Compute rates, stall and demand from the samples of one dispatcher. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from distributed_input.api.local_workers import PLANNED_SHARE

MIN_RUNNING_SHARE = 0.01
"""Minimum share of its time that a trainer counts as running. It keeps the demand finite."""
WINDOW_SECONDS = 120.0
"""Length of the window over which steady rates are averaged."""
LOAD_CHANGE = 0.2
"""Relative difference between the latest rates and the window's that counts as a change of load.
Older samples are then dropped."""
RECENT_SECONDS = 4.5
RECONCILE_SECONDS, STALLED_RECONCILE_SECONDS = 10.0, 5.0
"""Interval between reconciliations of an input that has consumers, and of one that stalls."""
STALLED = 0.05
MIN_BATCHES = 5
"""Minimum number of batches per trainer that can show a change of load."""
MAX_KEPT = 40_000
"""Maximum number of workers and consumers in the samples of one input. With more, samples between
the first and the latest ones are dropped."""
PAUSE_SECONDS = 300.0
"""A trainer that neither reads nor waits (checkpoint, evaluation) is expected to resume. Its input
keeps the workers for this time."""


@dataclass(frozen=True, slots=True)
class ConsumerCounters:
    """Counters of one trainer's sidecar since the sidecar started. Times in seconds."""

    rows: int = 0
    wait: float = 0.0
    wall: float = 0.0
    useful_workers: int = 0
    useful_limit: str = ""
    finished: bool = False
    batches: int = 0
    mismatches: int = 0
    """Replays that made other rows than before."""
    pod: str = ""
    """Id of its pod. Empty: the pod has no worker of its own."""


@dataclass(frozen=True, slots=True)
class WorkerCounters:
    """Counters of one worker since it started. `busy` is in seconds, summed over its streams."""

    address: str = ""
    rows: int = 0
    busy: float = 0.0
    streams: int = 0
    stalled: str = ""
    """Split that has made no progress for the longest time."""
    stalled_seconds: float = 0.0
    pod: str = ""
    """Id of the trainer's pod that alone uses it. Empty: it is a worker pod."""
    permits: float = 0.0
    """Number of streams that it could run at the same time, summed over time in seconds."""
    failure: str = ""
    """The last error of its dataset."""


@dataclass(frozen=True, slots=True)
class SkippedRecords:
    """The records that splits left out since the dispatcher started, once for each epoch."""

    count: int = 0
    last: str = ""
    """The last one, with its error, as text for people. Empty: there is none."""


@dataclass(frozen=True, slots=True)
class DispatcherSample:
    """One status response of a dispatcher, at `time` (seconds of any monotonic clock)."""

    time: float
    consumers: Mapping[str, ConsumerCounters] = field(default_factory=dict)
    """By job, index and incarnation."""
    workers: Mapping[str, WorkerCounters] = field(default_factory=dict)
    """By worker id. A restarted worker has a new id."""
    amplification: int = 0
    """How often an epoch of a job reads every record, at most. 0: once."""
    skipped: SkippedRecords = SkippedRecords()

    @property
    def size(self) -> int:
        """The number of workers and consumers."""
        return len(self.consumers) + len(self.workers)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Rates of one input, in rows per second. None means unknown."""

    consumers: int = 0
    rows_per_second: float = 0.0
    stall: float = 0.0
    """Share of the time that trainers waited for input, 0 to 1."""
    demand: float | None = None
    """Rows per second that all trainers would read if they never waited."""
    busy_rate: float | None = None
    """Rows per second that one stream of one worker produces while it is busy. If worker pods
    have produced rows, only they count."""
    busy_rate_is_local: bool = False
    """Whether `busy_rate` is that of workers in trainers' pods, because no worker pod has produced
    rows. On a busy node it is much lower."""
    local_rate: float = 0.0
    """The part of the demand that the workers in the trainers' own pods can meet."""
    local_workers: int = 0
    """Number of workers in trainers' pods."""
    useful_workers: int = 0
    """Number of workers above which more cannot help. 0 means unknown."""
    useful_limit: str = ""
    """What sets this number, as text for people. Empty: unknown."""
    streams: Mapping[str, int] = field(default_factory=dict)
    """Open streams by the worker's host."""
    batches: int = 0
    """Batches of all trainers in the measured time."""
    paused: bool = False
    """Whether the trainers neither read nor waited."""
    stalled: str = ""
    """Split that has made no progress for the longest time, and its worker. Empty: none."""
    mismatches: int = 0
    """Replays that made other rows than before, since the sidecars started."""
    amplification: int = 0
    """How often an epoch of a job reads every record, at most. 0: once."""
    failing: str = ""
    """An error of the dataset in the last minutes, and its worker. Empty: none."""
    skipped: SkippedRecords = SkippedRecords()


def reconcile_interval(measurement: Measurement) -> float:
    """Return the seconds until the next reconciliation of an input that has consumers."""
    return STALLED_RECONCILE_SECONDS if measurement.stall > STALLED else RECONCILE_SECONDS


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The samples that describe the present load, and the measurement over them."""

    samples: tuple[DispatcherSample, ...] = ()
    measurement: Measurement | None = None
    paused_since: float | None = None

    @property
    def size(self) -> int:
        """The number of workers and consumers in all samples."""
        return sum(one.size for one in self.samples)

    def add(self, sample: DispatcherSample) -> RateWindow:
        """Return the window with one more sample, without the samples that are too old."""
        if not self.samples:
            return RateWindow((sample,), measure(None, sample))
        latest = measure(self.samples[-1], sample)
        if latest.paused:
            return self._add_paused(latest, sample)
        kept = tuple(one for one in self.samples if one.time >= sample.time - WINDOW_SECONDS)
        kept = kept or self.samples[-1:]
        recent = [one for one in kept if one.time <= sample.time - RECENT_SECONDS] or kept[:1]
        whole, latest = measure(kept[0], sample), measure(recent[-1], sample)
        if _load_changed(whole, latest) or _consumers_changed(kept[0], sample):
            return RateWindow((*kept[kept.index(recent[-1]) :], sample), latest)
        return RateWindow(_thinned((*kept, sample)), whole)

    def _add_paused(self, latest: Measurement, sample: DispatcherSample) -> RateWindow:
        """Keep the previous demand for PAUSE_SECONDS: a pause does not measure the demand."""
        since = self.samples[-1].time if self.paused_since is None else self.paused_since
        if self.measurement and sample.time - since < PAUSE_SECONDS:
            before = self.measurement
            latest = replace(
                latest,
                demand=before.demand,
                busy_rate=before.busy_rate,
                busy_rate_is_local=before.busy_rate_is_local,
                local_rate=before.local_rate,
            )
        return RateWindow((sample,), latest, since)


def _thinned(samples: tuple[DispatcherSample, ...]) -> tuple[DispatcherSample, ...]:
    """Return the first and the latest samples, with at most MAX_KEPT workers and consumers."""
    largest = max(one.size for one in samples)
    latest = max(2, MAX_KEPT // max(largest, 1) - 1)
    return samples if len(samples) <= latest else (samples[0], *samples[-latest:])


def _load_changed(whole: Measurement, latest: Measurement) -> bool:
    if latest.batches < MIN_BATCHES * latest.consumers:
        return False
    pairs = (
        (whole.demand, latest.demand),
        (whole.busy_rate, latest.busy_rate),
        (whole.local_rate, latest.local_rate),
    )
    return any(old and new and abs(new / old - 1) > LOAD_CHANGE for old, new in pairs)


def _consumers_changed(before: DispatcherSample, after: DispatcherSample) -> bool:
    """Return whether other trainers read now: a new one has no rate over the whole window."""
    return before.consumers.keys() != after.consumers.keys()


def measure(before: DispatcherSample | None, after: DispatcherSample) -> Measurement:
    """Measure what happened between two samples.

    Sidecars and workers that started in between are not part of the rates. Without an earlier
    sample, only the counts of `after` are known.
    """
    reading = {key: one for key, one in after.consumers.items() if not one.finished}
    known = before.consumers if before else {}
    pairs = [(known[key], one) for key, one in reading.items() if key in known]
    pairs = [(then, now) for then, now in pairs if now.rows >= then.rows and now.wall > then.wall]
    seconds = max(after.time - before.time, 1e-3) if before else 1.0
    rates = [(now.pod, _unstalled_rate(then, now)) for then, now in pairs if _has_demand(then, now)]
    worked = before.workers if before else {}
    remote = {key: one for key, one in after.workers.items() if not one.pod}
    remote_rate = _busy_rate(worked, remote) if before else None
    any_rate = _busy_rate(worked, after.workers) if before else None
    wall = sum(now.wall - then.wall for then, now in pairs)
    wait = sum(max(0.0, now.wait - then.wait) for then, now in pairs)
    return Measurement(
        consumers=len(reading),
        rows_per_second=sum(now.rows - then.rows for then, now in pairs) / seconds,
        stall=min(1.0, wait / wall) if wall > 0 else 0.0,
        demand=sum(rate for _, rate in rates) if rates else None,
        busy_rate=any_rate if remote_rate is None else remote_rate,
        busy_rate_is_local=remote_rate is None and any_rate is not None,
        local_rate=met_locally(rates, _local_capacity(worked, after.workers, seconds)),
        local_workers=sum(1 for one in after.workers.values() if one.pod),
        useful_workers=sum(one.useful_workers for one in reading.values()),
        useful_limit=min((one.useful_limit for one in reading.values()), default=""),
        streams=_streams_by_host(after.workers.values()),
        batches=sum(now.batches - then.batches for then, now in pairs),
        stalled=_stalled(after.workers.values()),
        paused=wall > 0
        and wait <= MIN_RUNNING_SHARE * wall
        and all(now.rows == then.rows for then, now in pairs),
        mismatches=sum(one.mismatches for one in after.consumers.values()),
        amplification=after.amplification,
        failing=_failing(after.workers.values()),
        skipped=after.skipped,
    )


def _has_demand(then: ConsumerCounters, now: ConsumerCounters) -> bool:
    """Return whether two samples of a trainer show its demand. A wait without rows does not."""
    return now.rows > then.rows or now.wait - then.wait <= MIN_RUNNING_SHARE * (
        now.wall - then.wall
    )


def _unstalled_rate(then: ConsumerCounters, now: ConsumerCounters) -> float:
    """Return the rows per second of a trainer in the time in which it did not wait."""
    wall = now.wall - then.wall
    running = max(wall - (now.wait - then.wait), MIN_RUNNING_SHARE * wall)
    return (now.rows - then.rows) / running


def _local_capacity(
    before: Mapping[str, WorkerCounters], after: Mapping[str, WorkerCounters], seconds: float
) -> dict[str, float]:
    """Return the rows per second that the workers of each pod could produce."""
    found: dict[str, float] = {}
    usual = _busy_rate(before, after) or 0.0
    for key, now in after.items():
        if now.pod:
            rate = _busy_rate(before, {key: now})  # None: it was idle
            permits = max(0.0, now.permits - before.get(key, WorkerCounters()).permits)
            capacity = (usual if rate is None else rate) * permits / seconds
            found[now.pod] = found.get(now.pod, 0.0) + capacity
    return found


def met_locally(demand: Iterable[tuple[str, float]], capacity: Mapping[str, float]) -> float:
    """Return the rows per second that need no worker pod.

    A worker in a trainer's pod serves only this pod. So one pod's spare capacity does not meet
    another pod's demand.

    Laws: the result is at most the whole demand, and at most the whole capacity. It decreases with
    no pod's capacity.

    Args:
        demand: pod and rows per second of each consumer. Several consumers may be in one pod.
        capacity: rows per second that the workers in each pod can produce.
    """
    by_pod: dict[str, float] = {}
    for pod, rate in demand:
        by_pod[pod] = by_pod.get(pod, 0.0) + rate
    return sum(min(rate, PLANNED_SHARE * capacity.get(pod, 0.0)) for pod, rate in by_pod.items())


def _busy_rate(
    before: Mapping[str, WorkerCounters], after: Mapping[str, WorkerCounters]
) -> float | None:
    rows, busy = 0, 0.0
    for key, now in after.items():
        then = before.get(key, WorkerCounters())
        if now.rows >= then.rows and now.busy >= then.busy:
            rows, busy = rows + now.rows - then.rows, busy + now.busy - then.busy
    return rows / busy if rows > 0 and busy > 0 else None


def _stalled(workers: Iterable[WorkerCounters]) -> str:
    stalled = [worker for worker in workers if worker.stalled]
    if not stalled:
        return ""
    longest = max(stalled, key=lambda worker: worker.stalled_seconds)
    return f"{longest.stalled}, worker {longest.address}"


def _failing(workers: Iterable[WorkerCounters]) -> str:
    """Return one of the workers' errors: the same one until its worker has another."""
    failing = (f"{one.failure}, worker {one.address}" for one in workers if one.failure)
    return min(failing, default="")


def _streams_by_host(workers: Iterable[WorkerCounters]) -> dict[str, int]:
    return {
        worker.address.rpartition(":")[0].strip("[]"): worker.streams
        for worker in workers
        if not worker.pod
    }
