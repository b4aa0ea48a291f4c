"""Events, for `kubectl describe` and whoever collects them: why there are not more workers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from distributed_input.api import names, timestamps
from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.objects.children import digest
from distributed_input_operator.objects.snapshot import Snapshot
from distributed_input_operator.reconcile.conditions import LIMITED

_AS_WANTED = ("Idle", "Paused")
"""Limits that the spec asks for."""

_log = logging.getLogger(__name__)


async def tell(api: Api, snapshot: Snapshot, status: Mapping[str, Any], now: float) -> None:
    """Tell of a limit that is new, is another one, or is gone. An event that is lost is lost."""
    before = next((one for one in snapshot.status.conditions if one.type == LIMITED), None)
    after = next((one for one in status["conditions"] if one["type"] == LIMITED), None)
    if after is not None and (before is None or before.message != after["message"]):
        kind = "Normal" if after["reason"] in _AS_WANTED else "Warning"
        await _tell(api, snapshot, kind, after["reason"], after["message"], now)
    elif before is not None and after is None:
        what = f"all {status['workers']['asked']} workers that are asked for are granted"
        await _tell(api, snapshot, "Normal", "ScalingUnlimited", what, now)


async def _tell(
    api: Api, snapshot: Snapshot, kind: str, reason: str, message: str, now: float
) -> None:
    meta = snapshot.resource.metadata
    # The same words have the same name: who goes to and fro over a limit is told of it once for as
    # long as the API server keeps events, an hour.
    same = digest([meta.uid, reason, message])
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta.name}.{same}", "namespace": meta.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
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
        _log.info("%s/%s: an event was not taken: %s", meta.namespace, meta.name, error)
