"""Policies that decide how many workers each input has, each at its own interval."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from distributed_input.api.resource.policy import UNLIMITED, Budget
from distributed_input.api.resource.sections.workers import AutoscalingSpec
from distributed_input_operator.autoscaling.decision import (
    AutoscalingState,
    Observation,
    ScalingDecision,
    decide,
    needed_workers,
)
from distributed_input_operator.autoscaling.rates import (
    RateWindow,
    reconcile_interval,
)
from distributed_input_operator.budget.allocation import allocate
from distributed_input_operator.budget.claim import Claim
from testing.simulator.traces import Trace
from testing.simulator.world import World

MAX_WORKERS = 64
"""Maximum number of workers of one input."""


class Policy(ABC):
    """A way to scale, applied to one trace."""

    label = ""
    seconds = 10.0
    """Interval between two decisions."""

    def __init__(self, trace: Trace, world: World) -> None:
        self.trace, self.world = trace, world
        self.jobs = {one.name: one for one in trace.jobs}

    def interval(self) -> float:
        """Return the seconds until the next decision."""
        return self.seconds

    def initial(self) -> dict[str, int]:
        """Return the replicas of each input at the start."""
        return {name: math.ceil(job.load(0.0).need) or 1 for name, job in self.jobs.items()}

    @abstractmethod
    def requested(self) -> dict[str, int]:
        """Return the workers that each input requests, before budgets."""

    def decide(self) -> None:
        """Resize all inputs. Budgets are first come, first served, as with a ResourceQuota."""
        requested = self.requested()
        for name, count in requested.items():
            if count < self.world.inputs[name].replicas:
                self.world.resize(name, count)
        for name, count in requested.items():
            now = self.world.inputs[name].replicas
            if count > now:
                self.world.resize(name, now + min(count - now, self._room(name)))

    def _room(self, name: str) -> int:
        room = MAX_WORKERS
        for of, limit in self.trace.limits.items():
            if of in self.jobs[name].budgets:
                used = [
                    len(self.world.inputs[n].workers)
                    for n, j in self.jobs.items()
                    if of in j.budgets
                ]
                room = min(room, limit - sum(used))
        return max(0, room)


class Ours(Policy):
    """The operator's own functions, called as its control loop calls them."""

    label = "DistributedInput"
    window = 120

    def __init__(self, trace: Trace, world: World) -> None:
        super().__init__(trace, world)
        self._windows = {name: RateWindow() for name in self.jobs}
        self._decisions = {
            name: ScalingDecision(AutoscalingState(one.replicas))
            for name, one in world.inputs.items()
        }
        self.budgets = {
            name: Budget(name, (limit, UNLIMITED, UNLIMITED))
            for name, limit in trace.limits.items()
        }

    def interval(self) -> float:
        """Return the shortest interval of all inputs: here they are reconciled together."""
        measurements = [one.measurement for one in self._windows.values()]
        return min(reconcile_interval(one) for one in measurements if one)

    def requested(self) -> dict[str, int]:
        """Decide for each input by itself."""
        return {name: self._decide(name) for name in self.jobs}

    def _decide(self, name: str) -> int:
        one, now = self.world.inputs[name], self.world.now
        one.advance(now)
        window = self._windows[name] = self._windows[name].add(one.sample(now))
        measured = window.measurement
        staying = [w for w in one.ready(now) if not w.leaving]
        consumers = measured.consumers if measured else None
        observed = Observation(needed_workers(measured, 1), consumers, 0, len(staying))
        bounds = AutoscalingSpec.model_validate(
            {
                "minReplicas": 1,
                "maxReplicas": MAX_WORKERS,
                "stabilizationWindowSeconds": self.window,
                "idleTTLSeconds": 300,
            }
        )
        decision = decide(self._decisions[name].state, bounds, observed, now)
        self._decisions[name] = decision
        return decision.state.desired

    def decide(self) -> None:
        """Divide the budgets among all inputs, and resize them."""
        claims = [self._claim(name, count) for name, count in self.requested().items()]
        for (_, name), grant in allocate(self.budgets, claims).items():
            if grant.workers != self.world.inputs[name].replicas:
                self.world.resize(name, grant.workers)

    def _claim(self, name: str, count: int) -> Claim:
        one, job = self.world.inputs[name], self.jobs[name]
        cost = float(max(1, one.load.trainers) * one.accelerators)
        return Claim(
            ("sim", name),
            requested=count,
            needed=self._decisions[name].needed,
            minimum=min(1, count),
            replicas=one.replicas,
            leaving=sum(1 for worker in one.workers if worker.leaving),
            stall_cost=cost,
            budgets=job.budgets,
        )


class OursBrief(Ours):
    """The same with a window of 10 s instead of 120 s: workers are removed nearly at once."""

    label = "DistributedInput, window 10 s"
    window = 10
