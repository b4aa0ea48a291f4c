"""How many workers an input should have. Pure: state in, state out, `now` passed in.

    need = rows a second that the trainers would take unstalled
           / rows a second that one worker makes while busy

Capped where more workers cannot help. Up at once, but to no more than four times what already
works; down only to the most that was needed for a whole window; to none where nobody has read for
long and the spec allows that. Small differences change nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from distributed_input_operator.autoscaling.rates import STEP, Measured

SHORT = 0.02
"""A stall of so much is no reason for one more worker."""
SPARE = 0.03
"""A worker goes only where the others would have so much left: measurements are not exact."""
_FIRST_STEP = 8
"""So many workers are always allowed at once, however few work yet."""
_STEP = 4
"""How many times what works is allowed at once: a trainer that waits nearly all of its time tells
little of what it would take."""


@dataclass(frozen=True)
class Bounds:
    """What the spec says."""

    least: int
    most: int
    window: float
    """Seconds for which fewer workers must have done before some go."""
    paused: bool = False
    idle: float | None = None
    """Seconds without a reader after which all workers go; None: the least stay."""


@dataclass(frozen=True)
class Seen:
    """What is known of an input at one moment."""

    need: float | None = None
    """See `need`."""
    readers: int | None = None
    """Trainers that read; None: not known."""
    useful: int = 0
    """More workers than this cannot help; 0: not known."""
    working: int = 0
    """Workers that are ready: those that start are on their way and count as there."""


@dataclass(frozen=True)
class State:
    """What must be remembered from one decision to the next; it lives in the status."""

    desired: int
    fewer_since: float | None = None
    """Since when fewer would have done; seconds."""
    fewer: int = 0
    """The most that was needed since then."""
    idle_since: float | None = None
    """Since when nobody reads; seconds."""


@dataclass(frozen=True)
class Decision:
    """The next state, and what held the number back, if anything did."""

    state: State
    reason: str = ""
    """One word for the condition ScalingLimited; empty where nothing limits."""
    message: str = ""
    needed: int | None = None
    """Workers at which nobody would stall, whatever bounds and steps allow; those that are only
    kept for a while are not among them. None: not known."""


def need(measured: Measured | None, parallelism: int) -> float | None:
    """Workers, not rounded, that the trainers could keep busy; 0 where nobody reads, or has not
    for so long that it counts as none; None where not known.

    `parallelism`: rows that one worker computes at once.
    """
    if measured is None:
        return None
    if measured.consumers == 0 or (measured.paused and measured.demand == 0):
        return 0.0
    if measured.demand is None or measured.busy_rate is None:
        return None
    return measured.demand / (measured.busy_rate * parallelism)


def recommended(measured: Measured | None, parallelism: int) -> int | None:
    """`need` in whole workers: at least one where anyone reads."""
    exact = need(measured, parallelism)
    if exact is None:
        return None
    least = 1 if measured and measured.consumers else 0
    return max(least, _whole(exact, -SHORT))


def _whole(exact: float, spare: float) -> int:
    return max(1, math.ceil(exact * (1 + spare) - 1e-9)) if exact else 0


def decide(state: State, bounds: Bounds, seen: Seen, now: float) -> Decision:
    """The number of workers from now on.

    Args:
        state: after the last decision.
        bounds: the spec's.
        seen: what is known.
        now: seconds, of the clock of `state`.
    """
    idle_since = _idle_since(state, seen, now)
    if bounds.paused:  # what would have done before then is no reason to go afterwards
        paused = State(state.desired, idle_since=idle_since)
        return Decision(paused, "Paused", "autoscaling.paused is true")
    # Who came since a dispatcher fell silent is not known: workers stay as they are, if any.
    known = seen.readers is not None or not state.desired
    if known and idle_since is not None and now - idle_since >= _ttl(bounds):
        return Decision(State(0, idle_since=idle_since), "Idle", "nobody reads: see idleTTLSeconds")
    made = _reading(state, bounds, seen, now)
    return replace(made, state=replace(made.state, idle_since=idle_since))


def _ttl(bounds: Bounds) -> float:
    return math.inf if bounds.idle is None else bounds.idle


def _idle_since(state: State, seen: Seen, now: float) -> float | None:
    if seen.readers is None:
        return state.idle_since
    if seen.readers:
        return None
    return now if state.idle_since is None else state.idle_since


def _reading(state: State, bounds: Bounds, seen: Seen, now: float) -> Decision:
    current = min(max(state.desired, bounds.least), bounds.most)
    if seen.need is None:
        if seen.readers and not state.desired:  # so many as may come at once, for none can measure
            current = min(max(current, _FIRST_STEP), bounds.most)
        return Decision(State(current, state.fewer_since, state.fewer))
    needed = _whole(seen.need, -SHORT)
    up, reason, message = _limited(needed, bounds, seen.useful)
    down = _limited(_whole(seen.need, SPARE), bounds, seen.useful)[0]
    if up > current:
        step = max(_FIRST_STEP, _STEP * seen.working)
        return Decision(State(max(current, min(up, step))), reason, message, needed)
    if down >= current:
        return Decision(State(current), reason, message, max(needed, current))
    lower = _lower(state, current, down, bounds.window, now)
    kept = lower.fewer if lower.fewer_since is not None else lower.desired
    return Decision(lower, reason, message, min(kept, current))


def _limited(wanted: int, bounds: Bounds, useful: int) -> tuple[int, str, str]:
    """The number, and what limits it; not how many are wanted, for a new message is a write and an
    event, and that number changes all the time: `status.live` has it.
    """
    if useful and wanted > useful and useful < bounds.most:
        target = max(useful, bounds.least)
        return (
            target,
            "NoMoreUse",
            f"more workers are wanted, but only {useful} can work at once: raise partitions or "
            "sidecar.readAhead to use more",
        )
    if wanted > bounds.most:
        return (
            bounds.most,
            "MaxReplicas",
            f"more than {bounds.most} workers are wanted: raise workers.autoscaling.maxReplicas",
        )
    return max(wanted, bounds.least), "", ""


def _lower(state: State, current: int, target: int, window: float, now: float) -> State:
    if state.fewer_since is None or target < (1 - STEP) * state.fewer:
        since, most = now, target  # a new level: what was needed on the way there does not count
    else:
        since, most = state.fewer_since, max(target, state.fewer)
    if now - since >= window:
        return State(min(most, current))
    return State(current, since, most)
