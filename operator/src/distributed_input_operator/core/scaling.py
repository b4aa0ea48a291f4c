"""How many workers an input should have. Pure: state in, state out, `now` passed in.

    recommended = ceil(rows a second that the trainers would take unstalled
                       / rows a second that one worker makes while busy)

Capped where more workers cannot help. Up at once, but to no more than twice what already works;
down only to the most that was recommended for a whole window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from distributed_input_operator.core.rates import Measured

TOLERANCE = 0.1
"""A recommendation this close to what is there changes nothing."""
_FIRST_STEP = 4
"""So many workers are always allowed at once, however few work yet."""


@dataclass(frozen=True)
class Bounds:
    """What the spec says."""

    least: int
    most: int
    window: float
    """Seconds for which fewer workers must have done before some go."""
    paused: bool = False


@dataclass(frozen=True)
class State:
    """What must be remembered from one decision to the next; it lives in the status."""

    desired: int
    fewer_since: float | None = None
    """Since when fewer would have done; seconds."""
    fewer: int = 0
    """The most that was recommended since then."""


@dataclass(frozen=True)
class Decision:
    """The next state, and what held the number back, if anything did."""

    state: State
    reason: str = ""
    """One word for the condition ScalingLimited; empty where nothing limits."""
    message: str = ""


def recommended(measured: Measured | None, parallelism: int) -> int | None:
    """Workers that the trainers could keep busy; 0 where nobody reads, None where not known.

    `parallelism`: rows that one worker computes at once.
    """
    if measured is None:
        return None
    if measured.consumers == 0:
        return 0
    if measured.demand is None or measured.busy_rate is None:
        return None
    exact = measured.demand / (measured.busy_rate * parallelism)
    return max(1, math.ceil(exact - 1e-9))


def decide(
    state: State, bounds: Bounds, wanted: int | None, useful: int, working: int, now: float
) -> Decision:
    """The number of workers from now on.

    Args:
        state: after the last decision.
        bounds: the spec's.
        wanted: see `recommended`.
        useful: more workers than this cannot help; 0: not known.
        working: workers that are ready: those that start are on their way and count as there.
        now: seconds, of the clock of `state`.
    """
    current = min(max(state.desired, bounds.least), bounds.most)
    if bounds.paused:
        return Decision(State(state.desired), "Paused", "autoscaling.paused is true")
    if wanted is None:
        return Decision(State(current, state.fewer_since, state.fewer))
    target, reason, message = _limited(wanted, bounds, useful)
    if target >= current or current - target <= TOLERANCE * current:
        step = max(_FIRST_STEP, 2 * working)
        grown = target if target - current > TOLERANCE * current else current
        return Decision(State(max(current, min(grown, step))), reason, message)
    return Decision(_lower(state, current, target, bounds.window, now), reason, message)


def _limited(wanted: int, bounds: Bounds, useful: int) -> tuple[int, str, str]:
    if useful and wanted > useful and useful < bounds.most:
        target = max(useful, bounds.least)
        return (
            target,
            "NoMoreUse",
            f"{wanted} workers are wanted, but only {useful} can work at once: raise partitions "
            "or sidecar.readAhead to use more",
        )
    if wanted > bounds.most:
        return (
            bounds.most,
            "MaxReplicas",
            f"{wanted} workers are wanted: raise workers.autoscaling.maxReplicas",
        )
    return max(wanted, bounds.least), "", ""


def _lower(state: State, current: int, target: int, window: float, now: float) -> State:
    if state.fewer_since is None:
        since, most = now, target
    else:
        since, most = state.fewer_since, max(target, state.fewer)
    if now - since >= window:
        return State(min(most, current))
    return State(current, since, most)
