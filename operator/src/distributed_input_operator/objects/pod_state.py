"""A pod as the API server has it -> what plans need of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed_input.api import names
from distributed_input_operator.budget.pod_requests import requested_amount
from distributed_input_operator.objects.snapshot import Pod

_IMAGE_TROUBLE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_CONFIG_TROUBLE = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_ENDED = ("Failed", "Succeeded")
_LINE_LENGTH = 300


def pod(obj: Mapping[str, Any]) -> Pod:
    """The pod's state; unknown fields of young pods are empty."""
    meta, status = obj["metadata"], obj.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions", [])}
    waits = status.get("phase", "Pending") == "Pending"
    scheduled = conditions.get("PodScheduled", {}) if waits else {}
    cost = (meta.get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost")
    return Pod(
        name=meta["name"],
        component=(meta.get("labels") or {}).get(names.COMPONENT_LABEL, ""),
        ip=status.get("podIP", ""),
        created=meta.get("creationTimestamp", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in meta or status.get("phase") in _ENDED,
        ended=status.get("phase") in _ENDED,
        deletion_cost=int(cost) if cost and cost.lstrip("-").isdigit() else None,
        unschedulable=str(scheduled.get("message", ""))
        if scheduled.get("status") == "False"
        else "",
        failing=next(filter(None, map(_failing, status.get("containerStatuses", []))), ""),
        takes=requested_amount(obj.get("spec") or {}),
    )


def _failing(container: Mapping[str, Any]) -> str:
    """Why a container does not run, in one line; empty where it runs or is about to."""
    name, waiting = container["name"], container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in _IMAGE_TROUBLE | _CONFIG_TROUBLE:
        return f"container {name}: {reason}: {waiting.get('message', '')}"[:_LINE_LENGTH]
    if reason != "CrashLoopBackOff":
        return ""
    ended = container.get("lastState", {}).get("terminated", {})
    words = str(ended.get("message") or ended.get("reason") or "").strip().splitlines() or [""]
    count = container.get("restartCount", 0)
    text = f"container {name} ended {count} times, last with status {ended.get('exitCode', '?')}"
    return f"{text}: {words[-1][-_LINE_LENGTH:]}"
