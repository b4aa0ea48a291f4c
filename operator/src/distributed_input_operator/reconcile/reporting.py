"""What changes all the time, for people: rounded, and written no more often than it is read."""

from __future__ import annotations

import math
from typing import Any

from distributed_input.api import timestamps
from distributed_input.api.resource.status import AutoscalingStatus, LiveStatus, Status
from distributed_input_operator.autoscaling.rates import Measured
from distributed_input_operator.autoscaling.scaling import recommended
from distributed_input_operator.reconcile.conditions import LIMITED

WRITE_SECONDS = 30.0
"""What changes all the time is written so often."""


def live_status(
    before: LiveStatus | None, measured: Measured | None, parallelism: int, now: float
) -> dict[str, Any] | None:
    """`status.live`: as it was where nothing moved; None where nobody reads.

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
    return {**values, "observedAt": timestamps.to_text(now)}


def worth_a_write(before: Status, after: Status, now: float) -> bool:
    """Whether `after` is to be written: what lasts at once, the rest 30 s after the last write."""
    if after == before:
        return False
    written = timestamps.to_seconds(before.live.observed_at) if before.live else None
    young = written is not None and now - written < WRITE_SECONDS
    return not young or _lasting(after) != _lasting(before)


def _lasting(status: Status) -> Status:
    """Without rates, and what autoscaling remembers of them and says of bounds that they touch."""
    told = [one for one in status.conditions if one.type != LIMITED]
    scaling = status.autoscaling and AutoscalingStatus(desired=status.autoscaling.desired)
    return status.model_copy(update={"live": None, "conditions": told, "autoscaling": scaling})


def rounded(rate: float) -> int:
    """To two digits, for the third changes all the time."""
    if rate < 1:
        return round(rate)
    digits = 1 - math.floor(math.log10(rate))
    return int(round(rate, min(digits, 0)))
