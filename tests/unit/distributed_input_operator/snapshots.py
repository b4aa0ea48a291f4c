"""Builders of snapshots, and a fake cluster that applies a plan."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput
from distributed_input.api.resource.status import Status
from distributed_input_operator.budget.claim import Grant, full_grant
from distributed_input_operator.objects.snapshot import Settings, Snapshot
from distributed_input_operator.reconcile.pace import Turn
from distributed_input_operator.reconcile.plan import Plan, make_plan, plan_demand
from distributed_input_operator.reconcile.rollout import DEADLINE

ROLLED_OUT = "NewReplicaSetAvailable"
NOW = 1_800_000_000.0
SETTINGS = Settings("worker:1", "sidecar:1", "operators")
KEY_SECRET = {"metadata": {"name": "key"}, "data": {"key": 43 * "a" + "="}}
"""The Secret with the key of the inputs' tokens."""


def resource(name: str = "digits", **spec: Any) -> DistributedInput:
    """Return a resource as `observe` returns it. Default: without encryption."""
    meta = {"name": name, "namespace": "team", "uid": "u-1", "generation": 3}
    whole = {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta}
    return DistributedInput.model_validate({**whole, "spec": {"encryption": "None", **spec}})


def template(pod: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """Return spec.workers with fields of the pod template: of its pods, and of its container."""
    containers = [{"name": "worker", **container}] if container else []
    return {"template": {"spec": {**(pod or {}), "containers": containers}}}


def ready(status: str = "True", **fields: Any) -> dict[str, Any]:
    """Return the condition Ready as JSON, with any other fields."""
    time = "2026-01-31T12:00:00Z"
    rest = {"reason": "Serving", "message": "", "lastTransitionTime": time}
    return {"type": "Ready", "status": status, **rest, **fields}


def snapshot(**spec: Any) -> Snapshot:
    """Return a snapshot of an input that was just created."""
    return Snapshot(resource(**spec), Status(), SETTINGS, {})


def plan(
    found: Snapshot, now: float = NOW, grant: Grant | None = None, turn: Turn = Turn.START
) -> Plan:
    """Plan as the controller does. Without a `grant`, the whole request is granted."""
    demand = plan_demand(found, now)
    return make_plan(found, demand, grant or full_grant(demand.request.claim.requested), turn)


def pods_status(
    available: int, *, updated: int | None = None, older: int = 0, reason: str = ROLLED_OUT
) -> dict[str, Any]:
    """Return a Deployment's status.

    Args:
        available: number of pods that are ready.
        updated: number of pods with the latest template. None: those that are available.
        older: number of pods with an earlier template.
        reason: of the condition Progressing.
    """
    updated = available if updated is None else updated
    message = f"the ReplicaSet: {reason}"
    status = "False" if reason == DEADLINE else "True"
    return {
        "replicas": updated + older,
        "updatedReplicas": updated,
        "readyReplicas": available,
        "availableReplicas": available,
        "conditions": [
            {"type": "Progressing", "status": status, "reason": reason, "message": message}
        ],
    }


def with_deployments(found: Snapshot, **statuses: dict[str, Any]) -> Snapshot:
    """Return the snapshot with the status of the Deployments `dispatcher` and `worker`."""
    objects = dict(found.objects)
    for part, status in statuses.items():
        place = ("Deployment", f"digits-{part}")
        objects[place] = {**objects[place], "status": status}
    return replace(found, objects=objects)


def after(before: Snapshot, written: Plan) -> Snapshot:
    """Return the snapshot once the plan's objects are applied, with an API server's additions."""
    objects = {key: copy.deepcopy(dict(one)) for key, one in before.objects.items()}
    for one in written.objects:
        live: dict[str, Any] = _stored(copy.deepcopy(dict(one)))
        live["metadata"]["resourceVersion"] = "1"
        live["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "1"
        live["status"] = objects.get((one["kind"], one["metadata"]["name"]), {}).get("status", {})
        objects[one["kind"], one["metadata"]["name"]] = live
    return replace(before, objects=objects)


def _stored(value: Any) -> Any:
    """Drop empty fields, and add the defaults of containers and ports."""
    if isinstance(value, list):
        return [_stored(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _stored(one) for key, one in value.items() if one not in ("", None, [], False)}
    if "image" in kept:
        kept |= {"imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log"}
    if "containerPort" in kept:
        kept["protocol"] = "TCP"
    return kept
