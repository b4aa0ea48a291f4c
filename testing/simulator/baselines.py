"""Policies that the operator's is compared with: HPA, tf.data service and fixed numbers."""

from __future__ import annotations

import math
import statistics

from distributed_input_operator.autoscaling.rates import DispatcherSample
from testing.simulator.policies import MAX_WORKERS, Policy
from testing.simulator.traces import Job, Trace
from testing.simulator.world import World


class Hpa(Policy):
    """A HorizontalPodAutoscaler on CPU with its defaults.

    It decides every 15 s with a tolerance of 10 %. It scales down only after 300 s, and up to at
    most double or four more pods. Metrics cover the last 30 s, as with metrics-server at its
    resolution of 15 s.
    """

    label = "HPA, CPU at 80 %"
    seconds = 15.0
    target = 0.8
    window = 300.0

    def __init__(self, trace: Trace, world: World) -> None:
        super().__init__(trace, world)
        self._before: dict[str, list[tuple[float, float]]] = {name: [] for name in self.jobs}
        self._recent: dict[str, list[tuple[float, int]]] = {name: [] for name in self.jobs}

    def requested(self) -> dict[str, int]:
        """Decide by the CPU use of ready pods."""
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
        recent = [(when, n) for when, n in self._recent[name] if when > now - self.window]
        self._recent[name] = [*recent, (now, count)]
        return min(
            MAX_WORKERS, max(1, count, *(min(n, one.replicas) for _, n in self._recent[name]))
        )


class HpaHalf(Hpa):
    """The same with more spare capacity."""

    label = "HPA, CPU at 50 %"
    target = 0.5


class TfData(Policy):
    """The formula of tf.data service's AutoScaler.

    It divides the consumers' total rate by the workers' mean throughput. Outliers beyond one
    standard deviation are replaced by the median. The result is at most four times the existing
    workers. The service only reports the number; here it is applied at once.
    """

    label = "tf.data service formula"

    def __init__(self, trace: Trace, world: World) -> None:
        super().__init__(trace, world)
        self._before: dict[str, DispatcherSample] = {}

    def requested(self) -> dict[str, int]:
        """Decide by what was reported since the last decision."""
        return {name: self._one(name) for name in self.jobs}

    def _one(self, name: str) -> int:
        one, now = self.world.inputs[name], self.world.now
        one.advance(now)
        sample = one.sample(now)
        before, self._before[name] = self._before.get(name), sample
        if before is None:
            return one.replicas
        read_rates = [
            (c.rows - p.rows) / max(c.wall - p.wall - (c.wait - p.wait), 0.01 * (c.wall - p.wall))
            for key, c in sample.consumers.items()
            if (p := before.consumers.get(key)) and c.wall > p.wall
        ]
        worker_rates = [
            (w.rows - last.rows) / (w.busy - last.busy)
            for key, w in sample.workers.items()
            if (last := before.workers.get(key)) and w.busy > last.busy and w.rows > last.rows
        ]
        if not read_rates or not worker_rates:
            return one.replicas
        count = math.ceil(
            sum(_without_outliers(read_rates)) / statistics.fmean(_without_outliers(worker_rates))
        )
        return min(MAX_WORKERS, max(1, min(count, 4 * max(1, len(one.workers)))))


def _without_outliers(values: list[float]) -> list[float]:
    if len(values) < 2:
        return values
    mean, away = statistics.fmean(values), statistics.stdev(values)
    middle = sorted(values)[len(values) // 2]
    return [value if abs(value - mean) <= away else middle for value in values]


class Static(Policy):
    """A fixed number for each input, chosen with knowledge of the whole trace."""

    seconds = 1e9

    def initial(self) -> dict[str, int]:
        """Return the chosen numbers, scaled down to the budget if there is one."""
        replicas = {name: max(1, math.ceil(self.choose(job))) for name, job in self.jobs.items()}
        for limit in self.trace.limits.values():
            part = min(1.0, limit / sum(replicas.values()))
            replicas = {name: max(1, math.floor(count * part)) for name, count in replicas.items()}
        return replicas

    def requested(self) -> dict[str, int]:
        """Return the numbers of the start."""
        return {name: one.replicas for name, one in self.world.inputs.items()}

    def choose(self, job: Job) -> float:
        """Return the workers of one input."""
        raise NotImplementedError


class Mean(Static):
    """The average need."""

    label = "static, at the mean"

    def choose(self, job: Job) -> float:
        """Return the average need over the trace."""
        ends = [start for start, _ in job.loads[1:]] + [self.trace.seconds]
        parts = zip(job.loads, ends, strict=True)
        return sum((end - at) * load.need for (at, load), end in parts) / self.trace.seconds


class Peak(Static):
    """The maximum need."""

    label = "static, at the peak"

    def choose(self, job: Job) -> float:
        """Return the maximum need over the trace."""
        return max(load.need for _, load in job.loads)
