"""Rates for people: rounded, and not written more often than anyone reads them."""

from __future__ import annotations

import math
from typing import Any

from distributed_input_operator.core import times
from distributed_input_operator.core.rates import Measured
from distributed_input_operator.core.scaling import recommended
from distributed_input_operator.core.status import LiveStatus

WRITE_SECONDS = 30.0
"""Rates that change all the time are written so often."""


def live_status(
    before: LiveStatus | None, measured: Measured | None, parallelism: int, now: float
) -> dict[str, Any] | None:
    """`status.live`: as it was where it is young or nothing moved; None where nobody reads.

    Args:
        before: as it was last written.
        measured: None: not known, what was written stays.
        parallelism: rows that one worker computes at once.
        now: seconds since 1970.
    """
    old = before.model_dump(by_alias=True) if before else None
    if measured is None:
        return old
    if measured.consumers == 0:
        return None
    values = {
        "consumers": measured.consumers,
        "epoch": measured.epoch,
        "rowsPerSecond": rounded(measured.rows_per_second),
        "stall": f"{round(100 * measured.stall)}%",
        "recommendedWorkers": recommended(measured, parallelism) or 0,
    }
    if old and all(old[key] == value for key, value in values.items()):
        return old
    written = times.seconds(before.observed_at) if before else None
    if written is not None and now - written < WRITE_SECONDS:
        return old
    return {**values, "observedAt": times.text(now)}


def rounded(rate: float) -> int:
    """To two digits, for the third changes all the time."""
    if rate < 1:
        return round(rate)
    digits = 1 - math.floor(math.log10(rate))
    return int(round(rate, min(digits, 0)))
