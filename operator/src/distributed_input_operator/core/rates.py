"""From what a dispatcher says twice to how it goes in between: rates, stall, demand. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LEAST_RUNNING = 0.01
"""Of its time, a trainer counts as running at least this share: demand stays finite."""


@dataclass(frozen=True)
class Consumer:
    """One life of one trainer's sidecar, counted from its start. Times in seconds."""

    rows: int = 0
    wait: float = 0.0
    wall: float = 0.0
    epoch: int = 0
    useful_workers: int = 0
    finished: bool = False


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
