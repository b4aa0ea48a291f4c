"""Policies with full knowledge: lower bounds for the cost of any policy."""

from __future__ import annotations

import math

from testing.simulator.policies import Policy
from testing.simulator.traces import Job


class Oracle(Policy):
    """A policy with full knowledge of the future.

    Workers are ready when they are needed, and are removed at once. Under a budget, every input
    that reads keeps one worker. The rest goes to the highest bids, each in full.
    """

    label = "oracle"
    seconds = 1.0

    def ahead(self) -> float:
        """Return the seconds of the future that are known: the start-up time of a worker."""
        return self.trace.conditions.start[1] + 1

    def requested(self) -> dict[str, int]:
        """Return the maximum need in that time."""
        ahead = self.ahead()
        most = {name: self._need(job, self.world.now, ahead) for name, job in self.jobs.items()}
        bids = {
            name: job.accelerators
            * max(1, job.load(self.world.now + ahead).trainers)
            / max(1, most[name])
            for name, job in self.jobs.items()
        }
        for limit in self.trace.limits.values():
            room = limit - sum(min(1, count) for count in most.values())
            for name in sorted(most, key=lambda name: -bids[name]):
                more = min(max(0, most[name] - 1), room)
                most[name], room = min(1, most[name]) + more, room - more
        return most

    def _need(self, job: Job, now: float, ahead: float) -> int:
        loads = [job.load(now), *(load for start, load in job.loads if now < start <= now + ahead)]
        resumes = [load for start, load in job.loads if ahead and now < start <= now + 120]
        paused = not loads[0].demand and loads[0].trainers
        exact = max(load.need for load in (loads + resumes if paused else loads))
        return math.ceil(exact * (1 + self.trace.conditions.noise) - 1e-9)

    def initial(self) -> dict[str, int]:
        """Return the need at the start."""
        return {name: self._need(job, 0.0, 20.0) for name, job in self.jobs.items()}


class Present(Oracle):
    """An oracle without the future: the best decision with knowledge of the present load."""

    label = "oracle of the present alone"

    def ahead(self) -> float:
        """Return 0: nothing of the future is known."""
        return 0.0

    def initial(self) -> dict[str, int]:
        """Return the need at the start."""
        return {name: self._need(job, 0.0, 0.0) for name, job in self.jobs.items()}
