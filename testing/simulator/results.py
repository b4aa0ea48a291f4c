"""The outcome of a policy on a trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from testing.simulator.policies import Policy
from testing.simulator.traces import Job, Trace
from testing.simulator.world import SimulatedInput, World

ACCELERATOR_HOUR = 3.0
WORKER_HOUR = 0.2
"""Prices in dollars per hour: of an accelerator that waits, and of a worker with four CPUs."""
TOLERANCE = 1
"""Maximum difference to the needed workers that counts as settled."""
SETTLED_SECONDS = 60.0
"""Time for which the number must stay within the tolerance."""


@dataclass
class Outcome:
    """The outcome of one run."""

    trace: Trace
    label: str
    stall_seconds: float = 0.0
    """Accelerator-seconds spent waiting."""
    worker_hours: float = 0.0
    oscillations: int = 0
    """Changes of direction within five minutes that no change of load explains."""
    settled: list[float] = field(default_factory=list)
    """Seconds from each step of the load until the number of ready workers has settled."""
    settled_down: list[float] = field(default_factory=list)
    most_used: int = 0
    """Maximum number of worker pods of all inputs at one time."""
    history: list[tuple[float, dict[str, int], dict[str, float]]] = field(default_factory=list)
    """Every five seconds: the time, and ready workers and stall by input."""

    @property
    def cost(self) -> float:
        """The cost in dollars."""
        return self.stall_seconds / 3600 * ACCELERATOR_HOUR + self.worker_hours * WORKER_HOUR


def run(trace: Trace, policy: type[Policy], seed: int = 1) -> Outcome:
    """Simulate a policy on a trace."""
    inputs = [SimulatedInput(job.name, job.accelerators, job.load(0.0)) for job in trace.jobs]
    start = policy(trace, World(inputs, trace.conditions, seed)).initial()
    inputs = [
        SimulatedInput(job.name, job.accelerators, job.load(0.0), start[job.name])
        for job in trace.jobs
    ]
    world = World(inputs, trace.conditions, seed)
    deciding, outcome = policy(trace, world), Outcome(trace, policy.label)
    for job in trace.jobs:
        for at, load in job.loads[1:]:
            world.at(at, lambda name=job.name, load=load: world.change(name, load))
    _repeat(world, deciding.interval, deciding.decide, min(3.0, deciding.seconds))
    _repeat(world, lambda: 5.0, lambda: _record(world, outcome), 0.0)
    world.run(trace.seconds)
    outcome.stall_seconds = sum(one.stall_seconds for one in inputs)
    outcome.worker_hours = sum(one.worker_seconds for one in inputs) / 3600
    for job in trace.jobs:
        _evaluate(job, outcome, world)
    return outcome


def _repeat(
    world: World, interval: Callable[[], float], event: Callable[[], None], first: float
) -> None:
    def again() -> None:
        event()
        world.at(world.now + interval(), again)

    world.at(first, again)


def _record(world: World, outcome: Outcome) -> None:
    serving, stall = {}, {}
    for name, one in world.inputs.items():
        needed, rate, count = one.rates(world.now)
        serving[name] = len([w for w in one.ready(world.now) if not w.leaving])
        stall[name] = max(0.0, 1 - rate * count / needed) if needed else 0.0
    outcome.history.append((world.now, serving, stall))
    used = sum(len(one.workers) for one in world.inputs.values())
    outcome.most_used = max(outcome.most_used, used)


def _evaluate(job: Job, outcome: Outcome, world: World) -> None:
    ends = [at for at, _ in job.loads[1:]] + [outcome.trace.seconds]
    changes = [at for one in outcome.trace.jobs for at, _ in one.loads[1:]]
    for ((at, load), end), (_, before) in zip(
        list(zip(job.loads, ends, strict=True))[1:], job.loads, strict=False
    ):
        if load.demand and before.demand and load.trainers and before.trainers:
            up = load.need > before.need
            seconds = _settles(outcome, job.name, load.need, at, end)
            (outcome.settled if up else outcome.settled_down).append(seconds)
    moves, number, last = [(t, n) for t, name, n in world.moves if name == job.name], None, None
    for time, count in moves:
        way = None if number is None else count > number
        if way is not None and last is not None and way != last[1]:
            explained = any(last[0] - 300 <= change <= time for change in changes)
            if time - last[0] < 300 and not explained:
                outcome.oscillations += 1
        if way is not None:
            last = (time, way)
        number = count


def _settles(outcome: Outcome, name: str, need: float, at: float, end: float) -> float:
    """Return the seconds until the number of ready workers has settled. Infinite: never."""
    needed, since = math.ceil(need - 1e-9), None
    for time, serving, _ in outcome.history:
        if at <= time < end:
            if abs(serving[name] - needed) > TOLERANCE:
                since = None
            elif since is None:
                since = time
            if since is not None and time - since >= SETTLED_SECONDS:
                return since - at
    return math.inf
