"""Compute how many workers the trainers of an input could keep busy. Pure.

needed workers = (rows per second that the trainers would read if they never waited
- rows per second that the workers in their own pods can produce for them)
/ rows per second that one worker produces while it is busy
"""

from __future__ import annotations

import math

from distributed_input_operator.autoscaling.rates import Measurement

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
