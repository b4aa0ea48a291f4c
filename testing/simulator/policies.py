"""Who decides how many workers there are. Each is asked at its own pace."""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod

from distributed_input_operator.autoscaling import rates, scaling
from distributed_input_operator.budget import allocation as budget
from testing.simulator.traces import Job, Trace
from testing.simulator.world import World

MOST = 64


class Policy(ABC):
    """One way to scale, on one trace."""

    label = ""
    seconds = 10.0
    """Between two looks."""

    def __init__(self, trace: Trace, world: World) -> None:
        self.trace, self.world = trace, world
        self.jobs = {one.name: one for one in trace.jobs}

    def pause(self) -> float:
        """Seconds until the next look."""
        return self.seconds

    def begin(self) -> dict[str, int]:
        """Replicas at the start."""
        return {name: math.ceil(job.load(0.0).need) or 1 for name, job in self.jobs.items()}

    @abstractmethod
    def wanted(self) -> dict[str, int]:
        """Workers that each input is to have, before budgets."""

    def look(self) -> None:
        """Decide, within the budgets: first come, first served, as a ResourceQuota does it."""
        wanted = self.wanted()
        for name, count in wanted.items():
            if count < self.world.inputs[name].replicas:
                self.world.resize(name, count)
        for name, count in wanted.items():
            now = self.world.inputs[name].replicas
            if count > now:
                self.world.resize(name, now + min(count - now, self._room(name)))

    def _room(self, name: str) -> int:
        room = MOST
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
    """The operator's own functions, as its loop calls them."""

    label = "DistributedInput"
    window = 120.0

    def __init__(self, trace: Trace, world: World) -> None:
        super().__init__(trace, world)
        self._windows = {name: rates.Window() for name in self.jobs}
        self._decisions = {
            name: scaling.Decision(scaling.State(one.replicas))
            for name, one in world.inputs.items()
        }
        self.budgets = {
            name: budget.Budget(name, (limit, budget.UNLIMITED, budget.UNLIMITED))
            for name, limit in trace.limits.items()
        }

    def pause(self) -> float:
        """As the operator does; here all inputs are looked at together."""
        return min(rates.look_again(one.measured) for one in self._windows.values() if one.measured)

    def wanted(self) -> dict[str, int]:
        """Each input by itself."""
        return {name: self._decide(name) for name in self.jobs}

    def _decide(self, name: str) -> int:
        one, now = self.world.inputs[name], self.world.now
        one.advance(now)
        window = self._windows[name] = self._windows[name].after(one.sample(now))
        measured = window.measured
        staying = [w for w in one.ready(now) if not w.leaving]
        seen = scaling.Seen(
            scaling.need(measured, 1), measured.consumers if measured else None, 0, len(staying)
        )
        bounds = scaling.Bounds(1, MOST, self.window, idle=300.0)
        made = self._decisions[name] = scaling.decide(
            self._decisions[name].state, bounds, seen, now
        )
        return made.state.desired

    def look(self) -> None:
        """All inputs together."""
        claims = [self._claim(name, count) for name, count in self.wanted().items()]
        for (_, name), grant in budget.allocate(self.budgets, claims).items():
            if grant.workers != self.world.inputs[name].replicas:
                self.world.resize(name, grant.workers)

    def _claim(self, name: str, count: int) -> budget.Claim:
        one, job = self.world.inputs[name], self.jobs[name]
        cost = float(max(1, one.load.trainers) * one.accelerators)
        return budget.Claim(
            ("sim", name),
            wanted=count,
            needed=self._decisions[name].needed,
            least=min(1, count),
            held=one.replicas,
            occupied=len(one.workers),
            cost=cost,
            budgets=job.budgets,
        )


class OursBrief(Ours):
    """With a window of 10 s instead of 120: workers go nearly at once."""

    label = "DistributedInput, window 10 s"
    window = 10.0


class Hpa(Policy):
    """A HorizontalPodAutoscaler on CPU, with its defaults: every 15 s, 10 % tolerance, down only
    after 300 s, up by the double or by four pods; metrics of the last 30 s, as metrics-server's
    resolution of 15 s gives them.
    """

    label = "HPA, CPU at 80 %"
    seconds = 15.0
    target = 0.8
    window = 300.0

    def __init__(self, trace: Trace, world: World) -> None:
        super().__init__(trace, world)
        self._before: dict[str, list[tuple[float, float]]] = {name: [] for name in self.jobs}
        self._asked: dict[str, list[tuple[float, int]]] = {name: [] for name in self.jobs}

    def wanted(self) -> dict[str, int]:
        """By the CPU of pods that serve."""
        return {name: self._one(name) for name in self.jobs}

    def _one(self, name: str) -> int:
        one, now = self.world.inputs[name], self.world.now
        one.advance(now)
        self._before[name] = [*self._before[name][-2:], (one.worker_busy, now)]
        busy, time = self._before[name][0]
        if now == time:
            return one.replicas
        ready = len([w for w in one.ready(now) if not w.leaving])
        ratio = (one.worker_busy - busy) / (now - time) / self.target
        count = one.replicas
        if abs(ratio - 1) > 0.1:
            count = math.ceil(ready * ratio)
        if ratio > 1:
            count = max(count, one.replicas)
        count = min(count, max(2 * one.replicas, one.replicas + 4))
        asked = [(when, n) for when, n in self._asked[name] if when > now - self.window]
        self._asked[name] = [*asked, (now, count)]
        return min(MOST, max(1, count, *(min(n, one.replicas) for _, n in self._asked[name])))


class HpaHalf(Hpa):
    """As the above, with more to spare."""

    label = "HPA, CPU at 50 %"
    target = 0.5


class TfData(Policy):
    """The formula of tf.data service's AutoScaler: the sum of what consumers take over the mean
    throughput of workers, outliers beyond one deviation replaced by the median, at most four times
    what there is. It only reports a number; here it is followed at once.
    """

    label = "tf.data service formula"

    def __init__(self, trace: Trace, world: World) -> None:
        super().__init__(trace, world)
        self._before: dict[str, rates.Sample] = {}

    def wanted(self) -> dict[str, int]:
        """By what was reported since the last look."""
        return {name: self._one(name) for name in self.jobs}

    def _one(self, name: str) -> int:
        one, now = self.world.inputs[name], self.world.now
        one.advance(now)
        sample = one.sample(now)
        before, self._before[name] = self._before.get(name), sample
        if before is None:
            return one.replicas
        takes = [
            (c.rows - p.rows) / max(c.wall - p.wall - (c.wait - p.wait), 0.01 * (c.wall - p.wall))
            for key, c in sample.consumers.items()
            if (p := before.consumers.get(key)) and c.wall > p.wall
        ]
        makes = [
            (w.rows - last.rows) / (w.busy - last.busy)
            for key, w in sample.workers.items()
            if (last := before.workers.get(key)) and w.busy > last.busy and w.rows > last.rows
        ]
        if not takes or not makes:
            return one.replicas
        count = math.ceil(sum(_plain(takes)) / statistics.fmean(_plain(makes)))
        return min(MOST, max(1, min(count, 4 * max(1, len(one.workers)))))


def _plain(values: list[float]) -> list[float]:
    if len(values) < 2:
        return values
    mean, away = statistics.fmean(values), statistics.stdev(values)
    middle = sorted(values)[len(values) // 2]
    return [value if abs(value - mean) <= away else middle for value in values]


class Static(Policy):
    """A number for each input, chosen once by who knows the trace."""

    seconds = 1e9

    def begin(self) -> dict[str, int]:
        """Scaled down to the budget, where there is one."""
        wanted = {name: max(1, math.ceil(self.choose(job))) for name, job in self.jobs.items()}
        for limit in self.trace.limits.values():
            part = min(1.0, limit / sum(wanted.values()))
            wanted = {name: max(1, math.floor(count * part)) for name, count in wanted.items()}
        return wanted

    def wanted(self) -> dict[str, int]:
        """As at the start."""
        return {name: one.replicas for name, one in self.world.inputs.items()}

    def choose(self, job: Job) -> float:
        """Workers for one input."""
        raise NotImplementedError


class Mean(Static):
    """What is needed on average."""

    label = "static, at the mean"

    def choose(self, job: Job) -> float:
        """Over the whole trace."""
        ends = [start for start, _ in job.loads[1:]] + [self.trace.seconds]
        parts = zip(job.loads, ends, strict=True)
        return sum((end - at) * load.need for (at, load), end in parts) / self.trace.seconds


class Peak(Static):
    """What is needed at most."""

    label = "static, at the peak"

    def choose(self, job: Job) -> float:
        """At any time."""
        return max(load.need for _, load in job.loads)


class Oracle(Policy):
    """Knows every load, and the future: workers serve when they are needed, and leave at once.

    Under a budget everyone who reads keeps one, and the rest goes to the highest bids, whole.
    """

    label = "oracle"
    seconds = 1.0

    def ahead(self) -> float:
        """So many seconds of the future are known: until a worker asked for now would serve."""
        return self.trace.conditions.start[1] + 1

    def wanted(self) -> dict[str, int]:
        """The most that is needed in that time."""
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
        there = [job.load(now), *(load for start, load in job.loads if now < start <= now + ahead)]
        resumes = [load for start, load in job.loads if ahead and now < start <= now + 120]
        paused = not there[0].demand and there[0].trainers
        exact = max(load.need for load in (there + resumes if paused else there))
        return math.ceil(exact * (1 + self.trace.conditions.noise) - 1e-9)

    def begin(self) -> dict[str, int]:
        """As wanted."""
        return {name: self._need(job, 0.0, 20.0) for name, job in self.jobs.items()}


class Present(Oracle):
    """Knows every load the moment that it changes, and nothing before: the best that anyone can do
    who decides by what there is.
    """

    label = "oracle of the present alone"

    def ahead(self) -> float:
        """Nothing of the future."""
        return 0.0

    def begin(self) -> dict[str, int]:
        """As wanted."""
        return {name: self._need(job, 0.0, 0.0) for name, job in self.jobs.items()}
