"""Compute how many workers the trainers of an input could keep busy. Pure.

needed workers = rows per second that the trainers would read if they never waited
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
    """Return the number of workers, not rounded, that the trainers could keep busy.

    Args:
        measurement: the input's rates. None: unknown.
        parallelism: rows that one worker computes at the same time.

    Returns:
        None if unknown, 0 if there are no consumers or all of them have paused for long.
    """
    if measurement is None:
        return None
    if measurement.consumers == 0 or (measurement.paused and measurement.demand == 0):
        return 0.0
    if measurement.demand is None or measurement.busy_rate is None:
        return None
    return measurement.demand / (measurement.busy_rate * parallelism)


def recommended_workers(measurement: Measurement | None, parallelism: int) -> int | None:
    """Return `needed_workers` as a whole number: at least one if there are consumers."""
    exact = needed_workers(measurement, parallelism)
    if exact is None:
        return None
    minimum = 1 if measurement and measurement.consumers else 0
    return max(minimum, whole_workers(exact, -STALL_TOLERANCE))


def whole_workers(exact: float, margin: float) -> int:
    """Return `exact` plus a relative `margin`, rounded up: at least one unless `exact` is 0."""
    return max(1, math.ceil(exact * (1 + margin) - 1e-9)) if exact else 0
