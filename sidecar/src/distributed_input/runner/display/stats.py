"""What the dispatchers say, summed up for people: pure values, `now` passed in.

Consumers and workers count from the start of their life, so a total is a sum over lives:
a restarted worker is a new worker_id, a restarted sidecar a new incarnation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WINDOW_SECONDS = 6.0
"""Rates are over this long: several heartbeats, or the numbers would jump."""


@dataclass(frozen=True)
class Consumer:
    """One sidecar's reader of one job, as of its last heartbeat. Times in seconds."""

    job: str
    index: int
    incarnation: str
    epoch: int = 0
    rows: int = 0
    batches: int = 0
    wait: float = 0.0
    wall: float = 0.0
    buffer: float = 0.0
    mismatches: int = 0
    finished: bool = False
    useful_workers: int = 0
    waiting_for: str = ""


@dataclass(frozen=True)
class Worker:
    """One life of a worker, as of its last heartbeat."""

    worker_id: str
    address: str
    rows: int = 0
    busy: float = 0.0
    streams: int = 0
    draining: bool = False
    node: str = ""


@dataclass(frozen=True)
class Status:
    """One answer of a dispatcher."""

    consumers: Sequence[Consumer] = ()
    workers: Sequence[Worker] = ()
    jobs: Sequence[str] = ()


@dataclass(frozen=True)
class Totals:
    """One input up to now. `wait` and `wall` are summed over its consumers."""

    epochs: int = 0
    """Epochs begun, the highest of all consumers."""
    rows: int = 0
    batches: int = 0
    wait: float = 0.0
    wall: float = 0.0
    mismatches: int = 0

    @property
    def stall(self) -> float:
        """Share of the time that trainers waited for input, 0 to 1."""
        return min(1.0, self.wait / self.wall) if self.wall > 0 else 0.0


@dataclass(frozen=True)
class Rates:
    """One input over the last WINDOW_SECONDS."""

    rows: float = 0.0
    batches: float = 0.0
    stall: float | None = None
    """None: nobody has run meanwhile."""


@dataclass
class Tally:
    """All that was seen of one input. Feed it with `add`."""

    consumers: dict[tuple[str, int, str], list[Consumer]] = field(default_factory=dict)
    """By job, index and incarnation: the last answer of each of its readers, oldest first."""
    workers: dict[str, Worker] = field(default_factory=dict)
    last: Status | None = None
    """The last answer; None while the dispatcher is away."""
    answered: bool = False
    """There was an answer once."""
    _window: deque[tuple[float, Totals]] = field(default_factory=deque)

    def add(self, status: Status | None, now: float) -> None:
        """Take in an answer, or None where there was none."""
        self.last = status
        if status is None:
            return
        self.answered = True
        for consumer in status.consumers:
            lives = self.consumers.setdefault(
                (consumer.job, consumer.index, consumer.incarnation), [consumer]
            )
            # Less than before: the trainer closed its reader, and opened another or none.
            if (consumer.rows, consumer.batches) < (lives[-1].rows, lives[-1].batches):
                lives.append(consumer)
            lives[-1] = consumer
        for worker in status.workers:
            self.workers[worker.worker_id] = worker
        self._window.append((now, self.totals()))
        while len(self._window) > 2 and self._window[1][0] <= now - WINDOW_SECONDS:
            self._window.popleft()

    def totals(self) -> Totals:
        """Sums over all consumers and their lives."""
        seen = [consumer for lives in self.consumers.values() for consumer in lives]
        return Totals(
            epochs=max((c.epoch + 1 for c in seen if c.batches or c.wall), default=0),
            rows=sum(c.rows for c in seen),
            batches=sum(c.batches for c in seen),
            wait=sum(c.wait for c in seen),
            wall=sum(c.wall for c in seen),
            mismatches=sum(c.mismatches for c in seen),
        )

    def rates(self) -> Rates:
        """How it goes at present."""
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
        """How full the readers' buffers are, 0 to 1: the mean of those that live."""
        live = [c.buffer for c in (self.last.consumers if self.last else ()) if not c.finished]
        return sum(live) / len(live) if live else 0.0

    @property
    def ready_workers(self) -> int:
        """Workers that take streams."""
        return sum(not w.draining for w in (self.last.workers if self.last else ()))

    def waiting_for(self, desired_workers: int) -> str:
        """What the input waits for, in a word or two; empty where rows flow."""
        if self.last is None:
            return "dispatcher"
        if self.rates().rows > 0:
            return ""
        named = sorted({c.waiting_for for c in self.last.consumers if c.waiting_for})
        if named:
            return ", ".join(named)
        if desired_workers and not self.ready_workers:
            return "worker"
        if not self.last.consumers:
            return "trainer to ask for input"
        return "" if self.totals().rows else "first rows"


def rows_by_address(tally: Tally) -> Mapping[str, tuple[int, float]]:
    """Address -> (rows, busy seconds), summed over the lives of workers at it."""
    found: dict[str, tuple[int, float]] = {}
    for worker in tally.workers.values():
        rows, busy = found.get(worker.address, (0, 0.0))
        found[worker.address] = (rows + worker.rows, busy + worker.busy)
    return found
