"""Decide how many workers an input should have. Pure: state in, state out, `now` is passed in.

The number follows the needed workers up to the number that can be useful:

    (rows per second that the trainers would read if they never waited
    - rows per second that the workers in their own pods can produce for them)
    / rows per second that one worker produces while it is busy

- It rises at once, but to at most four times the workers that are ready.
- It falls only to the maximum that was needed during a whole stabilization window.
- It becomes 0 if there were no consumers for a long time and the spec allows it.
- It stays 0 while the workers in the trainers' own pods start, if the minimum is 0.
- Small differences change nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from distributed_input.api.resource.sections.workers import AutoscalingSpec
from distributed_input_operator.autoscaling.rates import LOAD_CHANGE, Measurement

STALL_TOLERANCE = 0.02
"""Tolerated stall: a smaller one does not justify one more worker."""
SPARE_CAPACITY = 0.03
"""Spare capacity that must remain before a worker is removed. Measurements are not exact."""


def needed_workers(measurement: Measurement | None, parallelism: int) -> float | None:
    """Return the number of worker pods, not rounded, that the trainers could keep busy.

    `parallelism`: rows that one worker computes at the same time.

    Returns:
        None if unknown, 0 if there are no consumers, if all of them have paused for long, or if
        the workers in their own pods suffice. At most one per consumer until the rate of a worker
        pod is known.
    """
    if measurement is None:
        return None
    if measurement.consumers == 0 or (measurement.paused and measurement.demand == 0):
        return 0.0
    if measurement.demand is None or measurement.busy_rate is None:
        return None
    remaining = measurement.demand - measurement.local_rate
    if measurement.local_rate and remaining <= STALL_TOLERANCE * measurement.demand:
        return 0.0
    needed = remaining / (measurement.busy_rate * parallelism)
    # Otherwise, the first worker pods would be as many as if their nodes were as busy as the
    # trainers'. The next measurement has the rate of a worker pod.
    return min(needed, measurement.consumers) if measurement.busy_rate_is_local else needed


def useful_workers(measurement: Measurement | None) -> int:
    """Return the number of worker pods above which more cannot help. 0: unknown.

    The workers in the trainers' pods have their share of the open streams.
    """
    if measurement is None:
        return 0
    useful, demand = measurement.useful_workers, measurement.demand
    if not (demand and measurement.local_rate and useful):
        return useful
    share = min(measurement.local_rate, demand) / demand  # Not more than 1: it could overflow.
    return max(1, math.ceil(useful * (1 - share)))


def recommended_workers(measurement: Measurement | None, parallelism: int) -> int | None:
    """Return `needed_workers` as a whole number.

    It is at least one if there are consumers, unless they have workers in their own pods.
    """
    exact = needed_workers(measurement, parallelism)
    if exact is None:
        return None
    alone = measurement and measurement.consumers and not measurement.local_workers
    minimum = 1 if alone else 0
    return max(minimum, whole_workers(exact, -STALL_TOLERANCE))


def whole_workers(exact: float, margin: float) -> int:
    """Return `exact` plus a relative `margin`, rounded up: at least one unless `exact` is 0."""
    return max(1, math.ceil(exact * (1 + margin) - 1e-9)) if exact else 0


PAUSED = "Paused"
IDLE = "Idle"
USELESS = "NoMoreUse"
MAXIMUM = "MaxReplicas"
"""Reasons of the condition ScalingLimited. They are an interface."""

_MIN_STEP = 8
"""Workers that may always start at once, even if few are ready."""
LOCAL_START_SECONDS = 60.0
"""Time that workers in trainers' pods may take until rates are known. Then workers start."""
_STEP_FACTOR = 4
"""Maximum growth in one step, as a multiple of the ready workers. The demand of a trainer that
waits nearly all of its time is not measured well."""


@dataclass(frozen=True)
class Observation:
    """What is known about an input at one moment."""

    needed: float | None = None
    """Workers that the trainers could keep busy, not rounded. None: unknown."""
    consumers: int | None = None
    """Trainers that read. None: unknown."""
    useful_workers: int = 0
    """Number of workers above which more cannot help. 0: unknown."""
    ready_workers: int = 0
    useful_limit: str = ""
    """What sets `useful_workers`, as text for people. Empty: unknown."""


@dataclass(frozen=True)
class AutoscalingState:
    """What the next decision needs from the last one. It is stored in the status."""

    desired: int
    fewer_since: float | None = None
    """Time in seconds since which fewer workers would have been enough."""
    fewer: int = 0
    """Maximum number of workers needed since then."""
    idle_since: float | None = None
    """Time in seconds since which there are no consumers."""
    unmeasured_since: float | None = None
    """Time in seconds since which there are consumers, but no workers and no rates."""
    lower_since: float | None = None
    """Time in seconds since which clearly fewer than `fewer` would have been enough. It begins the
    next window. The status does not have it: after a change of the leader, the next window begins
    at the end of this one at the latest, so the number falls at most one window later."""
    lower: int = 0
    """Maximum number of workers needed since then."""

    @property
    def waits(self) -> bool:
        """Whether the number of workers may change without a change of the measurement."""
        return self.fewer_since is not None or self.unmeasured_since is not None


@dataclass(frozen=True)
class ScalingDecision:
    """The next state, and what limits the number of workers, if anything does."""

    state: AutoscalingState
    reason: str = ""
    """Reason of the condition ScalingLimited. Empty: nothing limits the number."""
    message: str = ""
    needed: int | None = None
    """Workers at which no trainer stalls, without bounds and steps. Workers that are only kept for
    the window do not count. None: unknown."""


def decide(
    state: AutoscalingState, bounds: AutoscalingSpec, observed: Observation, now: float
) -> ScalingDecision:
    """Decide the number of workers from now on.

    `now` is in seconds, of the clock of `state`.
    """
    idle_since = _idle_since(state, observed, now)
    if bounds.paused:  # The window starts again after the pause.
        paused = AutoscalingState(state.desired, idle_since=idle_since)
        return ScalingDecision(paused, PAUSED, "spec.workers.autoscaling.paused is true")
    # While the dispatcher does not answer, consumers may have come: existing workers stay.
    known = observed.consumers is not None or not state.desired
    ttl = math.inf if bounds.idle_ttl_seconds is None else bounds.idle_ttl_seconds
    if known and idle_since is not None and now - idle_since >= ttl:
        message = "no trainer reads (spec.workers.autoscaling.idleTTLSeconds)"
        return ScalingDecision(AutoscalingState(0, idle_since=idle_since), IDLE, message)
    decision = _follow_demand(state, bounds, observed, now)
    return replace(decision, state=replace(decision.state, idle_since=idle_since))


def _idle_since(state: AutoscalingState, observed: Observation, now: float) -> float | None:
    if observed.consumers is None:
        return state.idle_since
    if observed.consumers:
        return None
    return now if state.idle_since is None else state.idle_since


def _follow_demand(
    state: AutoscalingState, bounds: AutoscalingSpec, observed: Observation, now: float
) -> ScalingDecision:
    current = min(max(state.desired, bounds.min_replicas), bounds.max_replicas)
    if observed.needed is None:
        if not observed.consumers or state.desired:
            return ScalingDecision(replace(state, desired=current, unmeasured_since=None))
        since = now if state.unmeasured_since is None else state.unmeasured_since
        if not bounds.min_replicas and now - since < LOCAL_START_SECONDS:
            return ScalingDecision(AutoscalingState(0, unmeasured_since=since))
        # Without workers, no rate can be measured.
        return ScalingDecision(AutoscalingState(min(max(current, _MIN_STEP), bounds.max_replicas)))
    needed = whole_workers(observed.needed, -STALL_TOLERANCE)
    up, reason, message = _limit(needed, bounds, observed)
    spared = whole_workers(observed.needed, SPARE_CAPACITY)
    down = _limit(spared, bounds, observed)[0]
    if up > current:
        step = max(_MIN_STEP, _STEP_FACTOR * observed.ready_workers)
        raised = AutoscalingState(max(current, min(up, step)))
        return ScalingDecision(raised, reason, message, needed)
    if down >= current:
        return ScalingDecision(AutoscalingState(current), reason, message, max(needed, current))
    lowered = _lower(state, current, down, bounds.stabilization_window_seconds, now)
    kept = lowered.fewer if lowered.fewer_since is not None else lowered.desired
    return ScalingDecision(lowered, reason, message, min(kept, current))


def _limit(needed: int, bounds: AutoscalingSpec, observed: Observation) -> tuple[int, str, str]:
    """Return the number within the limits, and the reason and message of the limit.

    The message does not contain `needed`: that number changes all the time, and each new message
    is a status write and an Event. The metrics have the number.
    """
    useful = observed.useful_workers
    if useful and needed > useful and useful < bounds.max_replicas:
        limit = observed.useful_limit or "raise spec.partitions or spec.sidecar.readAhead"
        return (
            max(useful, bounds.min_replicas),
            USELESS,
            f"more workers are needed, but only {useful} can work at the same time: {limit}",
        )
    if needed > bounds.max_replicas:
        return (
            bounds.max_replicas,
            MAXIMUM,
            f"more than {bounds.max_replicas} workers are needed: raise "
            "spec.workers.autoscaling.maxReplicas",
        )
    return max(needed, bounds.min_replicas), "", ""


def _lower(
    state: AutoscalingState, current: int, target: int, window: float, now: float
) -> AutoscalingState:
    """Fall to the maximum of each whole window. A dip only begins a second, lower window."""
    since, most = state.fewer_since, max(target, state.fewer)
    if since is None:
        since, most = now, target
    lower_since, lower = state.lower_since, max(target, state.lower)
    if target >= (1 - LOAD_CHANGE) * most:
        lower_since, lower = None, 0
    elif lower_since is None or target < (1 - LOAD_CHANGE) * lower:
        lower_since, lower = now, target
    if now - since < window:
        return AutoscalingState(current, since, most, lower_since=lower_since, lower=lower)
    lowered = min(most, current)
    if lower_since is None:
        lower_since, lower = now, target
    if lower >= lowered:
        return AutoscalingState(lowered)
    return AutoscalingState(lowered, lower_since, lower)
