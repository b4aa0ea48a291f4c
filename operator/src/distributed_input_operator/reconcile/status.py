"""The status of an input. Pure.

The part that changes all the time is for people: rounded, and not written more often than read. A
value that changes within its rounding, or too soon, is not worth a write.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from distributed_input.api import names, timestamps
from distributed_input.api.resource.status import BadRecordsStatus, Status, TrainersStatus
from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.objects.snapshot import Failure, Manifest, Snapshot
from distributed_input_operator.objects.tf_data_service import tf_data_service_address
from distributed_input_operator.reconcile.conditions import (
    INVALID_SPEC,
    LIMITED,
    READY,
    Finding,
    conditions,
    findings,
    observed_generation,
    ready_workers,
    summarize,
)
from distributed_input_operator.reconcile.plan import Plan, lacks_rates


def input_status(
    snapshot: Snapshot, plan: Plan, failures: Iterable[Failure], now: float
) -> dict[str, Any] | None:
    """Return the status to write. None: the last one is still right.

    Values that change all the time are written at most every `snapshot.live_seconds`.
    """
    resource, before = snapshot.resource, snapshot.status
    failed = [*snapshot.missing, *failures, *plan.waiting]
    found = findings(snapshot, plan.grant, plan.decision, failed, plan.turn)
    generation = observed_generation(snapshot, failed)
    ready = ready_workers(snapshot)
    name = snapshot.name
    tf_data_service = tf_data_service_address(resource)
    state = plan.decision.state if plan.decision else None
    workers = snapshot.live("Deployment", names.worker(name)).get("status") or {}
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions(found, before.conditions, generation, timestamps.to_text(now)),
        "selector": ",".join(
            f"{key}={value}" for key, value in names.selector(name, names.WORKER).items()
        ),
        "workers": {
            "desired": plan.desired,
            "requested": plan.requested,
            "replicas": int(workers.get("replicas", 0)),
            "ready": ready,
            "summary": f"{ready}/{plan.desired}",
        },
        "dispatcher": {"address": names.address(name)},
        "tfDataService": {"address": tf_data_service} if tf_data_service else None,
        "trainers": _trainers(snapshot, now),
        "badRecords": bad_records_status(snapshot.status.bad_records, snapshot.measured),
        "autoscaling": _autoscaling(state),
    }
    status = {key: value for key, value in status.items() if value is not None}
    if not should_write(before, Status.model_validate(status), now, snapshot.live_seconds):
        return None
    if snapshot.measured and "trainers" in status:
        status["trainers"] = {**status["trainers"], "observedAt": timestamps.to_text(now)}
    return status


def invalid_status(
    before: Mapping[str, Any],
    generation: int,
    message: str,
    workers: Manifest,
    now: float,
) -> dict[str, Any] | None:
    """Return the status of an input whose spec is invalid. None: the last one is still right.

    What runs continues as it is.
    """
    old = Status.model_validate(before)
    found = summarize(Finding(READY, False, INVALID_SPEC, message), stalled=True)
    kept = {key: before[key] for key in ("selector", "workers", "dispatcher") if key in before}
    if "workers" in kept:
        live = workers.get("status") or {}
        ready, desired = int(live.get("readyReplicas", 0)), kept["workers"].get("desired", 0)
        kept["workers"] = {
            **kept["workers"],
            "replicas": int(live.get("replicas", 0)),
            "ready": ready,
            "summary": f"{ready}/{desired}",
        }
    status = {
        **kept,
        "observedGeneration": generation,
        "conditions": conditions(found, old.conditions, generation, timestamps.to_text(now)),
    }
    return None if Status.model_validate(status) == old else status


def _trainers(snapshot: Snapshot, now: float) -> dict[str, Any] | None:
    if snapshot.resource.spec.suspend:
        return None  # Nothing is measured any more.
    return trainers_status(snapshot.status.trainers, snapshot.measured, now)


def _autoscaling(state: AutoscalingState | None) -> dict[str, Any] | None:
    if state is None:
        return None
    status: dict[str, Any] = {}
    if state.fewer_since is not None:
        status |= {"fewerSince": timestamps.to_text(state.fewer_since), "fewer": state.fewer}
    if state.idle_since is not None:
        status["idleSince"] = timestamps.to_text(state.idle_since)
    if state.unmeasured_since is not None:
        status["unmeasuredSince"] = timestamps.to_text(state.unmeasured_since)
    return status or None


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


def bad_records_status(
    before: BadRecordsStatus | None, measurement: Measurement | None
) -> dict[str, Any] | None:
    """Return `status.badRecords`: as before without a measurement, None without such records."""
    if measurement is None:
        return before.model_dump(by_alias=True) if before else None
    skipped = measurement.skipped
    return {"skipped": skipped.count, "last": skipped.last} if skipped.count else None


def should_write(before: Status, after: Status, now: float, seconds: float = WRITE_SECONDS) -> bool:
    """Return whether to write `after`.

    Lasting changes are written at once, and so are the first trainer that comes, the last one that
    goes, the first skipped record, and replays that made other rows. Other values wait until
    `seconds` after the last write. At most WRITE_SECONDS wait the first rates, another reason of
    ScalingLimited, and what the next leader needs to remove workers.
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


def _lasting(status: Status) -> Status:
    """Return the status without rates, and without what autoscaling derives from them."""
    lasting = [one for one in status.conditions if one.type != LIMITED]
    found = status.trainers or TrainersStatus()
    changes = {"stalled_split": found.stalled_split, "reading": min(found.reading, 1)}
    kept = TrainersStatus().model_copy(update=changes)
    bad_records = BadRecordsStatus() if status.bad_records else None
    return status.model_copy(
        update={
            "trainers": kept,
            "conditions": lasting,
            "bad_records": bad_records,
            "autoscaling": None,
        }
    )


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
