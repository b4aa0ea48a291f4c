"""Conversion of a pod's JSON to the values that plans use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed_input.api import names
from distributed_input_operator.budget.pod_requests import requested_amount
from distributed_input_operator.objects.snapshot import Pod

_IMAGE_ERRORS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_CONFIG_ERRORS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
_ENDED_PHASES = ("Failed", "Succeeded")
_MAX_LINE_LENGTH = 300


def parse_pod(obj: Mapping[str, Any], resources: Sequence[str] = ()) -> Pod:
    """Return the state of a pod. Fields that a new pod does not have yet are empty.

    `resources`: names of those besides CPU and memory that budgets limit.
    """
    meta, status = obj["metadata"], obj.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions", [])}
    cost = (meta.get("annotations") or {}).get("controller.kubernetes.io/pod-deletion-cost")
    ended = status.get("phase") in _ENDED_PHASES
    return Pod(
        name=meta["name"],
        component=(meta.get("labels") or {}).get(names.COMPONENT_LABEL, ""),
        ip=status.get("podIP", ""),
        created=meta.get("creationTimestamp", ""),
        ready=conditions.get("Ready", {}).get("status") == "True",
        terminating="deletionTimestamp" in meta or ended,
        ends_by="" if ended else meta.get("deletionTimestamp", ""),
        ended=ended,
        deletion_cost=int(cost) if cost and cost.lstrip("-").isdigit() else None,
        unschedulable=_scheduling_error(status, conditions),
        failing=next(filter(None, map(_failure, _containers(status))), ""),
        takes=requested_amount(obj.get("spec") or {}, resources),
    )


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the states of all containers, in the order in which they start."""
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _scheduling_error(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> str:
    """Return the scheduler's message if it found no node for a pending pod, otherwise ""."""
    if status.get("phase", "Pending") != "Pending":
        return ""
    scheduled = conditions.get("PodScheduled", {})
    return str(scheduled.get("message", "")) if scheduled.get("status") == "False" else ""


def _failure(container: Mapping[str, Any]) -> str:
    """Return why a container fails, in one line, or "" if it runs or is starting."""
    name, waiting = container["name"], container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in _IMAGE_ERRORS | _CONFIG_ERRORS:
        return f"container {name}: {reason}: {waiting.get('message', '')}"[:_MAX_LINE_LENGTH]
    if reason != "CrashLoopBackOff":
        return ""
    last = container.get("lastState", {}).get("terminated", {})
    lines = str(last.get("message") or last.get("reason") or "").strip().splitlines() or [""]
    count, status = container.get("restartCount", 0), last.get("exitCode", "?")
    text = f"container {name} ended {count} times, last with exit status {status}"
    return f"{text}: {lines[-1][-_MAX_LINE_LENGTH:]}"
