"""Which parts of an input get a new pod template now. Pure.

An input has two parts, the Deployments of its dispatcher and of its workers. A new pod template
replaces all pods of a part. Two rules protect the trainers:

- Only one part is replaced at a time, first the dispatcher.
- A template that changed only because of the operator (another release, other settings) waits for
  the input's turn among all inputs: see `pace`. A change by the user does not wait.

No state is stored besides annotations of the Deployments, so a new leader continues.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names
from distributed_input.api.timestamps import to_seconds
from distributed_input_operator.objects.children import digest, group_annotations, queue_labels
from distributed_input_operator.objects.snapshot import Failure, Manifest, Snapshot
from distributed_input_operator.reconcile.pace import RolloutState
from distributed_input_operator.reconcile.rollout import (
    failure_message,
    has_only_latest_pods,
    is_rolling,
    is_stopping,
    refusal_message,
)

_LATE_SECONDS = 60.0
"""Time after which a pod that should have ended is reported."""
_COUNTS = ("replicas", "autoscaling")
"""Fields of spec.workers that programs change and that do not change pods."""
_NOT_OF_WORKERS = ("suspend", "dispatcher", "sidecar", "trainers", "epochs", "network_policy")
"""Fields of the spec that do not change pods of workers."""
_DISPATCHER_FIELDS = ("dispatcher", "tf_data_service")
"""Fields of the spec that change the dispatcher's pod, besides some of spec.workers."""
PART_WAITS = "PartWaits"
"""Reason of the condition Applied while a part waits until the other one is replaced."""


class Cause(enum.Enum):
    """Why the template of a part changes."""

    NONE = "none"
    USER = "user"
    OPERATOR = "operator"


@dataclass(frozen=True)
class PartChange:
    """What a new template would do to one part."""

    deployment: str
    """Name of its Deployment."""
    component: str
    """dispatcher or worker"""
    cause: Cause
    protected: bool
    """Whether pods are available, which a new template would replace."""
    busy: bool
    """Whether its pods are being replaced already."""
    failing: str
    """Why they fail. Empty: they do not."""
    marked: str
    """Revision of the operator that replaced the pods last. Empty: a change by the user did."""
    unschedulable: bool = False
    """Whether a pod of the part finds no node."""
    healthy: bool = True
    """Whether all its pods are available and none fails."""

    @property
    def holds_slot(self) -> bool:
        """Whether the operator's template is on its way to the pods."""
        return bool(self.marked) and self.busy


def part_changes(
    snapshot: Snapshot, desired: Sequence[Manifest], now: float
) -> tuple[PartChange, ...]:
    """Return what the desired Deployments would do, in the given order."""
    return tuple(_part_change(snapshot, one, now) for one in desired)


def _part_change(snapshot: Snapshot, desired: Manifest, now: float) -> PartChange:
    meta = desired["metadata"]
    live = snapshot.live("Deployment", meta["name"])
    component = meta["labels"][names.COMPONENT_LABEL]
    failing = next((pod.failing for pod in snapshot.of(component) if pod.failing), "")
    available = (live.get("status") or {}).get("availableReplicas", 0)
    wanted = (live.get("spec") or {}).get("replicas", 0)
    unschedulable = any(pod.unschedulable for pod in snapshot.of(component))
    marked = _annotations(live).get(names.ROLLOUT_ANNOTATION, "")
    # All its pods have the template, and time does not bring the missing ones: there may be no node
    # for them. If the operator's pods fail, that still counts against the pace.
    stuck = has_only_latest_pods(live) and (not marked or (available and not failing))
    busy = is_rolling(live) and not stuck
    return PartChange(
        deployment=meta["name"],
        component=component,
        cause=_cause(snapshot, live, desired, component),
        protected=bool(available and wanted),
        busy=busy,
        failing=(failure_message(live) or failing or _cannot_stop(snapshot, live, component, now))
        if busy
        else "",
        marked=marked,
        unschedulable=unschedulable,
        healthy=available >= wanted and not failing and not unschedulable,
    )


def _cannot_stop(snapshot: Snapshot, live: Manifest, component: str, now: float) -> str:
    """Return why the earlier pods of a part stay. Empty: nothing prevents their end."""
    if not is_stopping(live):
        return ""
    for pod in snapshot.pods:
        ends_by = to_seconds(pod.ends_by) if pod.component == component else None
        if ends_by is not None and now - ends_by > _LATE_SECONDS:
            return f"pod {pod.name} does not end: its node may be lost, or a finalizer holds it"
    return refusal_message(live)


def _cause(snapshot: Snapshot, live: Manifest, desired: Manifest, component: str) -> Cause:
    if not live:
        return Cause.NONE
    annotations = _annotations(live)
    template = digest(desired["spec"]["template"])
    if annotations.get(names.TEMPLATE_HASH_ANNOTATION) == template:
        return Cause.NONE  # If somebody else changed it, that is repaired at once.
    same = annotations.get(names.INPUT_HASH_ANNOTATION) == input_hash(snapshot, component)
    return Cause.OPERATOR if same else Cause.USER


def input_hash(snapshot: Snapshot, component: str) -> str:
    """Return a hash of what a user sets and that may change the pods of a component.

    A user's change of a field that it does
    not cover waits for its turn, as a change by the operator.
    """
    resource = snapshot.resource
    spec: dict[str, Any] = resource.spec.model_dump(mode="json", exclude_defaults=True)
    queue = queue_labels(resource.metadata, component) | group_annotations(resource.metadata)
    if component == names.DISPATCHER:
        workers, service = resource.spec.workers, resource.spec.tf_data_service
        used: list[Any] = []
        if service is not None:
            # The number of workers is a flag of the tf.data dispatcher.
            count = workers.replicas if service.static_sharding else None
            used += [workers.container.image, count]
        return digest([{key: spec.get(key) for key in _DISPATCHER_FIELDS}, used, queue])
    kept = {key: value for key, value in spec.items() if key not in _NOT_OF_WORKERS}
    of_workers = spec.get("workers", {})
    kept["workers"] = {key: of_workers[key] for key in of_workers if key not in _COUNTS}
    return digest([kept, queue, snapshot.code])


def rollout_state(changes: Sequence[PartChange], revision: str) -> RolloutState:
    """Return the input's state for `pace`."""
    moving = [one for one in changes if one.holds_slot]
    if any(one.failing for one in moving):
        return RolloutState.FAILING
    updated = [one for one in changes if one.marked == revision]
    waiting = [one for one in changes if one.cause is Cause.OPERATOR and one.protected]
    if moving or (waiting and updated):  # The first part is complete, the second one is next.
        return RolloutState.ROLLING
    if waiting:
        return RolloutState.BUSY if any(one.busy for one in changes) else RolloutState.WAITING
    # Only available pods show that the template is good.
    proven = bool(updated) and all(one.protected for one in updated)
    return RolloutState.UPDATED if proven else RolloutState.SETTLED


def held_parts(changes: Sequence[PartChange], *, may_start: bool) -> frozenset[str]:
    """Return the Deployments that keep their template for now.

    `may_start`: whether it is the input's turn to get the operator's template.
    """
    held: set[str] = set()
    starting = False
    for one in changes:
        others = [other for other in changes if other is not one]
        if one.cause is Cause.NONE or not one.protected:
            # Nothing is replaced, or nothing that serves.
            starting |= one.cause is not Cause.NONE
            continue
        if one.busy and (one.cause is Cause.USER or one.marked):
            continue
        if one.cause is Cause.OPERATOR:
            blocked = not may_start or any(other.busy for other in (*others, one))
        else:  # Pods that fail, or find no node, may need this change.
            blocked = any(
                other.busy and not other.failing and not other.unschedulable for other in others
            )
        if blocked or starting:
            held.add(one.deployment)
        else:
            starting = True
    return frozenset(held)


def is_missing_template(
    after: Snapshot, desired: Sequence[Manifest], changes: Sequence[PartChange]
) -> bool:
    """Return whether a template of the operator was written without success."""
    planned = {one["metadata"]["name"]: one for one in desired if one["kind"] == "Deployment"}
    return any(
        one.cause is Cause.OPERATOR
        and one.deployment in planned
        and _annotations(after.live("Deployment", one.deployment)).get(
            names.TEMPLATE_HASH_ANNOTATION
        )
        != _annotations(planned[one.deployment])[names.TEMPLATE_HASH_ANNOTATION]
        for one in changes
    )


def held_failure(changes: Sequence[PartChange], held: frozenset[str]) -> Failure | None:
    """Return the condition of a user's change that waits for the other part. None: none waits."""
    for one in changes:
        if one.deployment in held and one.cause is Cause.USER:
            message = f"the {one.component} pods are replaced after the other pods of this input"
            return Failure(PART_WAITS, message, passing=True)
    return None


def annotated(snapshot: Snapshot, desired: Manifest, change: PartChange) -> Manifest:
    """Return a desired Deployment with the annotations that the next change is compared with."""
    mark = change.marked
    if change.cause is Cause.USER:
        mark = ""
    elif change.cause is Cause.OPERATOR:
        mark = snapshot.settings.revision if change.protected or change.holds_slot else ""
    meta = desired["metadata"]
    annotations = {
        **meta["annotations"],
        names.TEMPLATE_HASH_ANNOTATION: digest(desired["spec"]["template"]),
        names.INPUT_HASH_ANNOTATION: input_hash(snapshot, change.component),
        **({names.ROLLOUT_ANNOTATION: mark} if mark else {}),
    }
    return {**desired, "metadata": {**meta, "annotations": annotations}}


def _annotations(live: Manifest) -> dict[str, str]:
    return (live.get("metadata") or {}).get("annotations") or {}
