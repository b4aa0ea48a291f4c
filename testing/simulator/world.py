"""Inputs in simulated time. Between two events all rates are constant, so sums are exact."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from distributed_input_operator.autoscaling.rates import Consumer, Sample, Worker

JITTER_SECONDS = 5.0
"""Trainers and workers are a little faster or slower for so long."""


@dataclass(frozen=True)
class Conditions:
    """How a cluster is, the same for all policies."""

    start: tuple[float, float] = (8.0, 16.0)
    """Seconds until a new worker serves: the least and the most."""
    drain: tuple[float, float] = (1.0, 10.0)
    """Seconds until a worker that is to go has handed back its splits."""
    noise: float = 0.05
    """Standard deviation of rates, as a share."""
    losses: float = 0.0
    """Spot losses of a worker an hour."""


@dataclass(frozen=True)
class Load:
    """What the trainers of an input take, from some moment on."""

    trainers: int = 1
    demand: float = 1000.0
    """Rows a second that one trainer takes while it does not wait; 0: it pauses."""
    rate: float = 100.0
    """Rows a second that one worker makes while busy."""

    @property
    def need(self) -> float:
        """Workers that keep the trainers going."""
        return self.trainers * self.demand / self.rate


@dataclass
class _Worker:
    number: int
    ready_at: float
    rows_before: float = 0.0
    busy_before: float = 0.0
    leaving: bool = False


@dataclass
class Input:
    """One input: what runs, and what was counted."""

    name: str
    accelerators: int
    """Of one trainer."""
    load: Load
    replicas: int = 1
    workers: list[_Worker] = field(default_factory=list)
    jitter: tuple[float, float] = (1.0, 1.0)
    since: float = 0.0
    lives: int = 0
    # Sums since the start, of one trainer and of one worker that was there all the time.
    rows: float = 0.0
    wait: float = 0.0
    wall: float = 0.0
    worker_rows: float = 0.0
    worker_busy: float = 0.0
    stall_seconds: float = 0.0
    """Accelerator-seconds."""
    worker_seconds: float = 0.0

    def ready(self, now: float) -> list[_Worker]:
        """Workers that serve; those that drain do."""
        return [one for one in self.workers if one.ready_at <= now]

    def rates(self, now: float) -> tuple[float, float, int]:
        """Rows a second that are wanted of all, that one worker makes, and workers that serve."""
        wanted = self.load.trainers * self.load.demand * self.jitter[0]
        return wanted, self.load.rate * self.jitter[1], len(self.ready(now))

    def advance(self, now: float) -> None:
        """Count what happened since the last event."""
        seconds, self.since = now - self.since, now
        wanted, rate, serving = self.rates(now - seconds / 2)
        taken = min(wanted, rate * serving)
        stalled = 1 - taken / wanted if wanted else 0.0
        if trainers := self.load.trainers:
            self.rows += seconds * taken / trainers
            self.wait += seconds * stalled
            self.wall += seconds
            self.stall_seconds += seconds * stalled * trainers * self.accelerators
        if serving:
            self.worker_rows += seconds * taken / serving
            self.worker_busy += seconds * taken / (rate * serving)
        self.worker_seconds += seconds * len(self.workers)

    def sample(self, now: float) -> Sample:
        """What the dispatcher of this input would answer."""
        one = Consumer(int(self.rows), self.wait, self.wall, batches=int(self.rows / 32))
        one = Consumer(one.rows, one.wait, one.wall, useful_workers=1 << 20, batches=one.batches)
        workers = {
            str(w.number): Worker(
                rows=int(self.worker_rows - w.rows_before), busy=self.worker_busy - w.busy_before
            )
            for w in self.ready(now)
        }
        return Sample(now, {f"{self.lives}/{n}": one for n in range(self.load.trainers)}, workers)


class World:
    """Inputs, and the events that are still to come."""

    def __init__(self, inputs: list[Input], conditions: Conditions, seed: int) -> None:
        self.now = 0.0
        self.inputs = {one.name: one for one in inputs}
        self.conditions = conditions
        self.moves: list[tuple[float, str, int]] = []
        """When which input's replicas became how many."""
        self._chance = {one.name: random.Random(f"{seed}/{one.name}") for one in inputs}
        self._noise = {one.name: random.Random(f"{seed}/{one.name}/noise") for one in inputs}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count()
        for one in inputs:
            self.resize(one.name, one.replicas, ready=True)
            if conditions.noise:
                self.at(0.0, lambda one=one: self._jitter(one))
            if conditions.losses:
                self._next_loss(one)

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Do something at a time, after what was planned for the same time before."""
        heapq.heappush(self._events, (time, next(self._order), what))

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until
        for one in self.inputs.values():
            one.advance(until)

    def change(self, name: str, load: Load) -> None:
        """From now on an input's trainers take something else."""
        one = self.inputs[name]
        one.advance(self.now)
        if load.trainers != one.load.trainers:
            one.lives += 1
            one.rows = one.wait = one.wall = 0.0
        one.load = load

    def resize(self, name: str, replicas: int, *, ready: bool = False) -> None:
        """Ask for so many workers; those that start go first."""
        one = self.inputs[name]
        one.advance(self.now)
        if replicas != one.replicas:
            self.moves.append((self.now, name, replicas))
        one.replicas = replicas
        staying = [w for w in one.workers if not w.leaving]
        for _ in range(replicas - len(staying)):
            self._start(one, 0.0 if ready else None)
        for worker in sorted(staying, key=lambda w: -w.ready_at)[: max(0, len(staying) - replicas)]:
            self._drain(one, worker)

    def _start(self, one: Input, seconds: float | None = None) -> None:
        if seconds is None:
            seconds = self._chance[one.name].uniform(*self.conditions.start)
        worker = _Worker(next(self._numbers), self.now + seconds)
        one.workers.append(worker)
        self.at(worker.ready_at, lambda: self._serve(one, worker))

    def _serve(self, one: Input, worker: _Worker) -> None:
        one.advance(self.now)
        worker.rows_before, worker.busy_before = one.worker_rows, one.worker_busy

    def _drain(self, one: Input, worker: _Worker) -> None:
        worker.leaving = True
        serving = worker.ready_at <= self.now
        seconds = self._chance[one.name].uniform(*self.conditions.drain) if serving else 0.0
        self.at(self.now + seconds, lambda: self._remove(one, worker))

    def _remove(self, one: Input, worker: _Worker) -> None:
        one.advance(self.now)
        if worker in one.workers:
            one.workers.remove(worker)

    def _jitter(self, one: Input) -> None:
        one.advance(self.now)
        chance, noise = self._noise[one.name], self.conditions.noise
        one.jitter = (max(0.5, chance.gauss(1, noise)), max(0.5, chance.gauss(1, noise)))
        self.at(self.now + JITTER_SECONDS, lambda: self._jitter(one))

    def _next_loss(self, one: Input) -> None:
        """The times are the same for all policies; that many more workers lose more of them."""
        seconds = self._noise[one.name].expovariate(self.conditions.losses * 16 / 3600)
        self.at(self.now + seconds, lambda: self._lose(one))

    def _lose(self, one: Input) -> None:
        one.advance(self.now)
        staying = [w for w in one.workers if not w.leaving]
        if staying and self._chance[one.name].random() < len(staying) / 16:
            one.workers.remove(self._chance[one.name].choice(staying))
            self._start(one)
        self._next_loss(one)
