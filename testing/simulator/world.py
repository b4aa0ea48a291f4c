"""Inputs in simulated time. Between two events all rates are constant, so sums are exact."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from distributed_input_operator.autoscaling.rates import (
    ConsumerCounters,
    DispatcherSample,
    WorkerCounters,
)

JITTER_SECONDS = 5.0
"""Seconds between two changes of the noise in the rates."""


@dataclass(frozen=True)
class Conditions:
    """Properties of a cluster, the same for all policies."""

    start: tuple[float, float] = (8.0, 16.0)
    """Minimum and maximum seconds until a new worker is ready."""
    drain: tuple[float, float] = (1.0, 10.0)
    """Minimum and maximum seconds until a removed worker has returned its splits."""
    noise: float = 0.05
    """Relative standard deviation of rates."""
    losses: float = 0.0
    """Spot losses per worker and hour."""


@dataclass(frozen=True)
class Load:
    """The load of an input's trainers during a period."""

    trainers: int = 1
    demand: float = 1000.0
    """Rows per second that one trainer reads while it does not wait. 0: it pauses."""
    rate: float = 100.0
    """Rows per second that one worker produces while it is busy."""

    @property
    def need(self) -> float:
        """The number of workers at which no trainer waits."""
        return self.trainers * self.demand / self.rate


@dataclass
class _Worker:
    number: int
    ready_at: float
    rows_before: float = 0.0
    busy_before: float = 0.0
    leaving: bool = False


@dataclass
class SimulatedInput:
    """One input: its workers and its counters."""

    name: str
    accelerators: int
    """Accelerators of one trainer."""
    load: Load
    replicas: int = 1
    workers: list[_Worker] = field(default_factory=list)
    jitter: tuple[float, float] = (1.0, 1.0)
    since: float = 0.0
    lives: int = 0
    # Sums since the start, of one trainer and of one worker that existed all the time.
    rows: float = 0.0
    wait: float = 0.0
    wall: float = 0.0
    worker_rows: float = 0.0
    worker_busy: float = 0.0
    stall_seconds: float = 0.0
    """In accelerator-seconds."""
    worker_seconds: float = 0.0

    def ready(self, now: float) -> list[_Worker]:
        """Return the workers that serve, including those that drain."""
        return [one for one in self.workers if one.ready_at <= now]

    def rates(self, now: float) -> tuple[float, float, int]:
        """Return the total demand, the rate of one worker, and the number of ready workers."""
        demand = self.load.trainers * self.load.demand * self.jitter[0]
        return demand, self.load.rate * self.jitter[1], len(self.ready(now))

    def advance(self, now: float) -> None:
        """Update the counters up to `now`."""
        seconds, self.since = now - self.since, now
        demand, rate, serving = self.rates(now - seconds / 2)
        rows = min(demand, rate * serving)
        stalled = 1 - rows / demand if demand else 0.0
        if trainers := self.load.trainers:
            self.rows += seconds * rows / trainers
            self.wait += seconds * stalled
            self.wall += seconds
            self.stall_seconds += seconds * stalled * trainers * self.accelerators
        if serving:
            self.worker_rows += seconds * rows / serving
            self.worker_busy += seconds * rows / (rate * serving)
        self.worker_seconds += seconds * len(self.workers)

    def sample(self, now: float) -> DispatcherSample:
        """Return what the dispatcher of this input would report."""
        one = ConsumerCounters(
            int(self.rows),
            self.wait,
            self.wall,
            useful_workers=1 << 20,
            batches=int(self.rows / 32),
        )
        workers = {
            str(w.number): WorkerCounters(
                rows=int(self.worker_rows - w.rows_before), busy=self.worker_busy - w.busy_before
            )
            for w in self.ready(now)
        }
        return DispatcherSample(
            now, {f"{self.lives}/{n}": one for n in range(self.load.trainers)}, workers
        )


class World:
    """Inputs, and the scheduled events."""

    def __init__(self, inputs: list[SimulatedInput], conditions: Conditions, seed: int) -> None:
        self.now = 0.0
        self.inputs = {one.name: one for one in inputs}
        self.conditions = conditions
        self.moves: list[tuple[float, str, int]] = []
        """Time, input and new number of each change of replicas."""
        self._random = {one.name: random.Random(f"{seed}/{one.name}") for one in inputs}
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

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Schedule an event, after those already scheduled for the same time."""
        heapq.heappush(self._events, (time, next(self._order), event))

    def run(self, until: float) -> None:
        """Run all events up to a time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until
        for one in self.inputs.values():
            one.advance(until)

    def change(self, name: str, load: Load) -> None:
        """Change the load of an input from now on."""
        one = self.inputs[name]
        one.advance(self.now)
        if load.trainers != one.load.trainers:
            one.lives += 1
            one.rows = one.wait = one.wall = 0.0
        one.load = load

    def resize(self, name: str, replicas: int, *, ready: bool = False) -> None:
        """Set the number of workers of an input. Starting workers are removed first."""
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

    def _start(self, one: SimulatedInput, seconds: float | None = None) -> None:
        if seconds is None:
            seconds = self._random[one.name].uniform(*self.conditions.start)
        worker = _Worker(next(self._numbers), self.now + seconds)
        one.workers.append(worker)
        self.at(worker.ready_at, lambda: self._serve(one, worker))

    def _serve(self, one: SimulatedInput, worker: _Worker) -> None:
        one.advance(self.now)
        worker.rows_before, worker.busy_before = one.worker_rows, one.worker_busy

    def _drain(self, one: SimulatedInput, worker: _Worker) -> None:
        worker.leaving = True
        serving = worker.ready_at <= self.now
        seconds = self._random[one.name].uniform(*self.conditions.drain) if serving else 0.0
        self.at(self.now + seconds, lambda: self._remove(one, worker))

    def _remove(self, one: SimulatedInput, worker: _Worker) -> None:
        one.advance(self.now)
        if worker in one.workers:
            one.workers.remove(worker)

    def _jitter(self, one: SimulatedInput) -> None:
        one.advance(self.now)
        chance, noise = self._noise[one.name], self.conditions.noise
        one.jitter = (max(0.5, chance.gauss(1, noise)), max(0.5, chance.gauss(1, noise)))
        self.at(self.now + JITTER_SECONDS, lambda: self._jitter(one))

    def _next_loss(self, one: SimulatedInput) -> None:
        """Schedule the next loss. The times are the same for all policies."""
        seconds = self._noise[one.name].expovariate(self.conditions.losses * 16 / 3600)
        self.at(self.now + seconds, lambda: self._lose(one))

    def _lose(self, one: SimulatedInput) -> None:
        one.advance(self.now)
        staying = [w for w in one.workers if not w.leaving]
        if staying and self._random[one.name].random() < len(staying) / 16:
            one.workers.remove(self._random[one.name].choice(staying))
            self._start(one)
        self._next_loss(one)
