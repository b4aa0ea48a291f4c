"""The part of the status that changes all the time: rounded, and not written more often than read.

It is for people. A value that changes within its rounding, or too soon, is not worth a write.
"""

from __future__ import annotations

import math
from typing import Any

from distributed_input.api import timestamps
from distributed_input.api.resource.status import Status, TrainersStatus
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.reconcile.conditions import LIMITED

WRITE_SECONDS = 30.0
"""Minimum seconds between two writes of values that change all the time. With hundreds of inputs
that trainers read, it is more."""


def trainers_status(
    before: TrainersStatus | None, measurement: Measurement | None, now: float
) -> dict[str, Any] | None:
    """Return `status.trainers`: as before if no value changed, None if there are no consumers.

    Without a measurement, the written values stay.
    """
    old = before.model_dump(by_alias=True, exclude_none=True) if before else None
    if measurement is None:
        return old
    if measurement.consumers == 0:
        return None
    values = {
        "reading": measurement.consumers,
        "rowsPerSecond": round_rate(measurement.rows_per_second),
        "stall": f"{round(100 * measurement.stall)}%",
        "stalledSplit": measurement.stalled,
        "replayMismatches": measurement.mismatches,
        "readAmplification": measurement.amplification,
    }
    if old and all(old[key] == value for key, value in values.items()):
        return old
    return {**values, "observedAt": timestamps.to_text(now)}


def should_write(before: Status, after: Status, now: float, seconds: float = WRITE_SECONDS) -> bool:
    """Return whether to write `after`.

    Lasting changes are written at once, and so are the first trainer that comes, the last one that
    goes, and replays that made other rows. Other values wait until `seconds` after the last write.
    At most WRITE_SECONDS wait the first rates, another reason of ScalingLimited, and what the next
    leader needs to remove workers.
    """
    if after == before:
        return False
    if _lasting(after) != _lasting(before) or _mismatches(after) > _mismatches(before):
        return True
    first_rates = lacks_rates(before) and not lacks_rates(after)
    if first_rates or _limit(after) != _limit(before) or _falls(after) or _falls(before):
        seconds = WRITE_SECONDS
    trainers = before.trainers
    written = timestamps.to_seconds(trainers.observed_at) if trainers else None
    return written is None or now - written >= seconds


def lacks_rates(status: Status) -> bool:
    """Return whether trainers read, but no rows were measured: one sample alone has no rates."""
    return status.trainers is not None and not status.trainers.rows_per_second


def _lasting(status: Status) -> Status:
    """Return the status without rates, and without what autoscaling derives from them."""
    lasting = [one for one in status.conditions if one.type != LIMITED]
    found = status.trainers or TrainersStatus()
    changes = {"stalled_split": found.stalled_split, "reading": min(found.reading, 1)}
    kept = TrainersStatus().model_copy(update=changes)
    return status.model_copy(update={"trainers": kept, "conditions": lasting, "autoscaling": None})


def _mismatches(status: Status) -> int:
    return status.trainers.replay_mismatches if status.trainers else 0


def _limit(status: Status) -> str:
    """Return the reason of ScalingLimited. It may change back and forth with the rates."""
    return next((one.reason for one in status.conditions if one.type == LIMITED), "")


def _falls(status: Status) -> bool:
    """Return whether the number of workers may fall soon."""
    return bool(status.autoscaling and status.autoscaling.fewer_since)


def round_rate(rate: float) -> int:
    """Round to two significant digits: the third changes all the time."""
    if rate < 1:
        return round(rate)
    digits = 1 - math.floor(math.log10(rate))
    return int(round(rate, min(digits, 0)))
