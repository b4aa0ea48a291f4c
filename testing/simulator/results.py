"""What came of a policy on a trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from testing.simulator.policies import Policy
from testing.simulator.traces import Job, Trace
from testing.simulator.world import Input, World

ACCELERATOR_HOUR = 3.0
WORKER_HOUR = 0.2
"""Prices in dollars: an accelerator that waits, a worker of four CPUs."""
WITHIN = 1
"""Settled means so close to what the load needs."""
STILL_SECONDS = 60.0
"""And staying there for so long."""


@dataclass
class Outcome:
    """One run."""

    trace: Trace
    label: str
    stall_seconds: float = 0.0
    """Accelerator-seconds that were waited."""
    worker_hours: float = 0.0
    oscillations: int = 0
    """Changes of direction within five minutes that the load did not ask for."""
    settled: list[float] = field(default_factory=list)
    """Seconds from each step of the load until enough workers serve, to within one, and stay."""
    settled_down: list[float] = field(default_factory=list)
    most_used: int = 0
    """Of worker pods at one time, over all inputs."""
    history: list[tuple[float, dict[str, int], dict[str, float]]] = field(default_factory=list)
    """Every five seconds: workers that serve, and stall, by input."""

    @property
    def cost(self) -> float:
        """In dollars."""
        return self.stall_seconds / 3600 * ACCELERATOR_HOUR + self.worker_hours * WORKER_HOUR


def run(trace: Trace, policy: type[Policy], seed: int = 1) -> Outcome:
    """Simulate."""
    inputs = [Input(job.name, job.accelerators, job.load(0.0)) for job in trace.jobs]
    start = policy(trace, World(inputs, trace.conditions, seed)).begin()
    inputs = [
        Input(job.name, job.accelerators, job.load(0.0), start[job.name]) for job in trace.jobs
    ]
    world = World(inputs, trace.conditions, seed)
    deciding, outcome = policy(trace, world), Outcome(trace, policy.label)
    for job in trace.jobs:
        for at, load in job.loads[1:]:
            world.at(at, lambda name=job.name, load=load: world.change(name, load))
    _every(world, deciding.pause, deciding.look, min(3.0, deciding.seconds))
    _every(world, lambda: 5.0, lambda: _note(world, outcome), 0.0)
    world.run(trace.seconds)
    outcome.stall_seconds = sum(one.stall_seconds for one in inputs)
    outcome.worker_hours = sum(one.worker_seconds for one in inputs) / 3600
    for job in trace.jobs:
        _judge(job, outcome, world)
    return outcome


def _every(
    world: World, pause: Callable[[], float], what: Callable[[], None], first: float
) -> None:
    def again() -> None:
        what()
        world.at(world.now + pause(), again)

    world.at(first, again)


def _note(world: World, outcome: Outcome) -> None:
    serving, stall = {}, {}
    for name, one in world.inputs.items():
        wanted, rate, count = one.rates(world.now)
        serving[name] = len([w for w in one.ready(world.now) if not w.leaving])
        stall[name] = max(0.0, 1 - rate * count / wanted) if wanted else 0.0
    outcome.history.append((world.now, serving, stall))
    used = sum(len(one.workers) for one in world.inputs.values())
    outcome.most_used = max(outcome.most_used, used)


def _judge(job: Job, outcome: Outcome, world: World) -> None:
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
            asked = any(last[0] - 300 <= change <= time for change in changes)
            if time - last[0] < 300 and not asked:
                outcome.oscillations += 1
        if way is not None:
            last = (time, way)
        number = count


def _settles(outcome: Outcome, name: str, need: float, at: float, end: float) -> float:
    """Seconds until the number of serving workers is right and stays so; infinite where never."""
    wanted, since = math.ceil(need - 1e-9), None
    for time, serving, _ in outcome.history:
        if at <= time < end:
            if abs(serving[name] - wanted) > WITHIN:
                since = None
            elif since is None:
                since = time
            if since is not None and time - since >= STILL_SECONDS:
                return since - at
    return math.inf
