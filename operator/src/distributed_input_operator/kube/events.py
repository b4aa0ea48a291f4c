"""Kubernetes Events: problems, what limits workers, skipped records, and replays that differ."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from distributed_input.api import names, timestamps
from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input_operator.autoscaling.decision import IDLE, PAUSED
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.objects.children import digest
from distributed_input_operator.objects.snapshot import Failure, Snapshot
from distributed_input_operator.reconcile.conditions import APPLIED, INVALID_SPEC, LIMITED, PROBLEMS

_INTENDED = (IDLE, PAUSED)
"""Limits that the spec asks for. Their Events are not warnings."""

ROLLOUT_FAILING = "RolloutFailing"
REPLAY_DIFFERS = "ReplayDiffers"
_REPLAY_DIFFERS_MESSAGE = (
    "A split that ran again made other rows than before: the dataset is not deterministic, or it "
    "has changed. Rows may be lost or repeated. Seed the dataset's random operations, use one kind "
    "of node, and change data only between runs. To stop the trainers instead, set "
    "spec.determinism: Strict. The log of the trainer names the split."
)
RECORDS_SKIPPED = "RecordsSkipped"
_ONE_AT_A_TIME = (RECORDS_SKIPPED,)
"""Reasons of which an input has one Event for as long as the API server keeps it. The message has
an example, and another one is no news."""

_MESSAGE_LENGTH = 1024
"""Maximum length of the message of an Event."""

_log = logging.getLogger(__name__)


_News = tuple[str, str, str]
"""Type, reason and message of an Event."""


async def report(
    api: Api,
    snapshot: Snapshot,
    status: Mapping[str, Any],
    failures: Iterable[Failure],
    now: float,
) -> None:
    """Create an Event for each part of a status that is news. A failure is only logged.

    Args:
        api: the API server.
        snapshot: the input, with its previous status.
        status: the new status.
        failures: of this reconciliation. Those that the operator retries get no Event.
        now: seconds since 1970.
    """
    news = (
        *_new_problems(snapshot, status, failures),
        *_new_limit(snapshot, status),
        *_new_mismatches(snapshot, status),
        *_new_skips(snapshot, status),
    )
    for kind, reason, message in news:
        await _create(api, _meta(snapshot), kind, reason, message, now)


async def report_invalid(api: Api, meta: Mapping[str, Any], message: str, now: float) -> None:
    """Create an Event that the spec cannot be used: `message`. A failure is only logged."""
    await _create(api, meta, "Warning", INVALID_SPEC, message[:_MESSAGE_LENGTH], now)


async def report_failing_rollout(api: Api, snapshot: Snapshot, cause: str, now: float) -> None:
    """Create an Event that the pods of the operator's new template fail."""
    message = f"The operator's new pod template fails: {cause}. It counts against the pace."
    await _create(api, _meta(snapshot), "Warning", ROLLOUT_FAILING, message, now)


def _new_problems(
    snapshot: Snapshot, status: Mapping[str, Any], failures: Iterable[Failure]
) -> Iterator[_News]:
    known = {(one.type, one.reason) for one in snapshot.status.conditions}
    known |= {(APPLIED, one.reason) for one in failures if one.passing}
    for one in status["conditions"]:
        if one["type"] in PROBLEMS and (one["type"], one["reason"]) not in known:
            yield "Warning", one["reason"], one["message"]


def _new_limit(snapshot: Snapshot, status: Mapping[str, Any]) -> Iterator[_News]:
    """Yield a limit that is new or has changed, or its end."""
    before = next((one for one in snapshot.status.conditions if one.type == LIMITED), None)
    after = next((one for one in status["conditions"] if one["type"] == LIMITED), None)
    if after is not None and (before is None or before.message != after["message"]):
        kind = "Normal" if after["reason"] in _INTENDED else "Warning"
        yield kind, after["reason"], after["message"]
    elif before is not None and after is None:
        message = f"all {status['workers']['requested']} requested workers are granted"
        yield "Normal", "ScalingUnlimited", message


def _new_mismatches(snapshot: Snapshot, status: Mapping[str, Any]) -> Iterator[_News]:
    """Yield that more replays made other rows than before."""
    trainers = snapshot.status.trainers
    before = trainers.replay_mismatches if trainers else 0
    if (status.get("trainers") or {}).get("replayMismatches", 0) > before:
        yield "Warning", REPLAY_DIFFERS, _REPLAY_DIFFERS_MESSAGE


def _new_skips(snapshot: Snapshot, status: Mapping[str, Any]) -> Iterator[_News]:
    """Yield that splits left out more records."""
    before, after = snapshot.status.bad_records, status.get("badRecords")
    if after is not None and after["skipped"] > (before.skipped if before else 0):
        command = f"kubectl dinput rows --skipped {snapshot.name}"
        message = f"Records are left out (spec.badRecords). `{command}` lists them. The last one: "
        yield "Warning", RECORDS_SKIPPED, message + after["last"]


def _meta(snapshot: Snapshot) -> dict[str, Any]:
    return snapshot.resource.metadata.model_dump(include={"name", "namespace", "uid"})


async def _create(
    api: Api, meta: Mapping[str, Any], kind: str, reason: str, message: str, now: float
) -> None:
    # Equal Events have the same name. An input that moves around a limit gets one Event for as long
    # as the API server keeps it, one hour.
    suffix = digest([meta["uid"], reason, "" if reason in _ONE_AT_A_TIME else message])
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{suffix}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": names.OPERATOR},
        "firstTimestamp": timestamps.to_text(now),
        "lastTimestamp": timestamps.to_text(now),
        "count": 1,
    }
    try:
        await api.create(event)
    except ApiError as error:
        if error.reason == "AlreadyExists":
            return
        _log.info("%s/%s: cannot create an Event: %s", meta["namespace"], meta["name"], error)
