"""From what a dispatcher says twice to how it goes in between: rates, stall, demand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

LEAST_RUNNING = 0.01
"""Of its time, a trainer counts as running at least this share: demand stays finite."""
WINDOW_SECONDS = 120.0
"""Rates are over so long while nothing changes, or they would jump."""
STEP = 0.2
"""Where the last seconds differ by more from the whole window, the load has changed: what was
before says nothing any more."""
RECENT_SECONDS = 4.5
SCALED_SECONDS, HURRIED_SECONDS = 10.0, 5.0
"""An input that trainers read is looked at so often, and so often while they stall."""
STALLED = 0.05
LEAST_BATCHES = 5
"""Fewer of a trainer tell nothing of a change."""
PAUSE_SECONDS = 300.0
"""Trainers that take nothing and wait for nothing (a checkpoint, an evaluation) will go on, and
keep their workers so long."""


@dataclass(frozen=True)
class Consumer:
    """One life of one trainer's sidecar, counted from its start. Times in seconds."""

    rows: int = 0
    wait: float = 0.0
    wall: float = 0.0
    epoch: int = 0
    useful_workers: int = 0
    finished: bool = False
    batches: int = 0


@dataclass(frozen=True)
class Worker:
    """One life of one worker, counted from its start. `busy` in seconds, over all its streams."""

    address: str = ""
    rows: int = 0
    busy: float = 0.0
    streams: int = 0


@dataclass(frozen=True)
class Sample:
    """One answer of a dispatcher, at `time` (seconds of any steady clock)."""

    time: float
    consumers: Mapping[str, Consumer] = field(default_factory=dict)
    """By job, index and incarnation."""
    workers: Mapping[str, Worker] = field(default_factory=dict)
    """By the worker's id, which is new in each life."""


@dataclass(frozen=True)
class Measured:
    """How it goes. Rates in rows a second; None: not known."""

    consumers: int = 0
    epoch: int = 0
    rows_per_second: float = 0.0
    stall: float = 0.0
    """Share of the time that trainers waited for input, 0 to 1."""
    demand: float | None = None
    """What all trainers would take if they never waited."""
    busy_rate: float | None = None
    """What one turn of one worker makes while it is busy."""
    useful_workers: int = 0
    """More of them cannot help; 0: not known."""
    streams: Mapping[str, int] = field(default_factory=dict)
    """Open streams by the worker's host."""
    batches: int = 0
    """Over all trainers, in the time that was measured."""
    paused: bool = False
    """The trainers took nothing and waited for nothing."""


def look_again(measured: Measured) -> float:
    """Seconds after which an input that trainers read is worth another look."""
    return HURRIED_SECONDS if measured.stall > STALLED else SCALED_SECONDS


@dataclass(frozen=True)
class Window:
    """The samples that still say how it goes, and what they say together."""

    samples: tuple[Sample, ...] = ()
    measured: Measured | None = None
    paused_since: float | None = None

    def after(self, sample: Sample) -> Window:
        """With one more sample."""
        if not self.samples:
            return Window((sample,), measure(None, sample))
        latest = measure(self.samples[-1], sample)
        if latest.paused:
            return self._paused(latest, sample)
        kept = tuple(one for one in self.samples if one.time >= sample.time - WINDOW_SECONDS)
        kept = kept or self.samples[-1:]
        recent = [one for one in kept if one.time <= sample.time - RECENT_SECONDS] or kept[:1]
        whole, latest = measure(kept[0], sample), measure(recent[-1], sample)
        if _stepped(whole, latest) or _others(kept[0], sample):
            return Window((*kept[kept.index(recent[-1]) :], sample), latest)
        return Window((*kept, sample), whole)

    def _paused(self, latest: Measured, sample: Sample) -> Window:
        """What was needed before is needed again soon; the pause itself is no measurement."""
        since = self.samples[-1].time if self.paused_since is None else self.paused_since
        if self.measured and sample.time - since < PAUSE_SECONDS:
            before = self.measured
            latest = replace(latest, demand=before.demand, busy_rate=before.busy_rate)
        return Window((sample,), latest, since)


def _stepped(whole: Measured, latest: Measured) -> bool:
    if latest.batches < LEAST_BATCHES * latest.consumers:
        return False
    pairs = ((whole.demand, latest.demand), (whole.busy_rate, latest.busy_rate))
    return any(old and new and abs(new / old - 1) > STEP for old, new in pairs)


def _others(before: Sample, after: Sample) -> bool:
    """Whether other trainers read: who came in between has no rate over the whole."""
    return before.consumers.keys() != after.consumers.keys()


def measure(before: Sample | None, after: Sample) -> Measured:
    """What happened between two samples; without `before`, only what one sample tells.

    Lives that began or began anew in between have no difference, and are left out of rates.
    """
    reading = {key: one for key, one in after.consumers.items() if not one.finished}
    known = before.consumers if before else {}
    pairs = [(known[key], one) for key, one in reading.items() if key in known]
    pairs = [(then, now) for then, now in pairs if now.rows >= then.rows and now.wall > then.wall]
    seconds = max(after.time - before.time, 1e-3) if before else 1.0
    wall = sum(now.wall - then.wall for then, now in pairs)
    wait = sum(max(0.0, now.wait - then.wait) for then, now in pairs)
    return Measured(
        consumers=len(reading),
        epoch=max((one.epoch for one in reading.values()), default=0),
        rows_per_second=sum(now.rows - then.rows for then, now in pairs) / seconds,
        stall=min(1.0, wait / wall) if wall > 0 else 0.0,
        demand=sum(map(_unstalled, *zip(*pairs, strict=True))) if pairs else None,
        busy_rate=_busy_rate(before.workers, after.workers) if before else None,
        useful_workers=sum(one.useful_workers for one in reading.values()),
        streams=_streams(after.workers.values()),
        batches=sum(now.batches - then.batches for then, now in pairs),
        paused=wall > 0
        and wait <= LEAST_RUNNING * wall
        and all(now.rows == then.rows for then, now in pairs),
    )


def _unstalled(then: Consumer, now: Consumer) -> float:
    """Rows a second of a trainer in the time in which it did not wait."""
    wall = now.wall - then.wall
    running = max(wall - (now.wait - then.wait), LEAST_RUNNING * wall)
    return (now.rows - then.rows) / running


def _busy_rate(before: Mapping[str, Worker], after: Mapping[str, Worker]) -> float | None:
    rows, busy = 0, 0.0
    for key, now in after.items():
        then = before.get(key, Worker())
        if now.rows >= then.rows and now.busy >= then.busy:
            rows, busy = rows + now.rows - then.rows, busy + now.busy - then.busy
    return rows / busy if rows > 0 and busy > 0 else None


def _streams(workers: Iterable[Worker]) -> dict[str, int]:
    return {worker.address.rpartition(":")[0].strip("[]"): worker.streams for worker in workers}
