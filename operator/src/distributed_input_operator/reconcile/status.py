"""The status of an input. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from distributed_input.api import names, timestamps
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.objects.snapshot import Failure, Manifest, Snapshot
from distributed_input_operator.objects.tf_data_service import tf_data_service_address
from distributed_input_operator.reconcile.conditions import (
    INVALID_SPEC,
    READY,
    Finding,
    conditions,
    findings,
    observed_generation,
    ready_workers,
    summarize,
)
from distributed_input_operator.reconcile.live_status import should_write, trainers_status
from distributed_input_operator.reconcile.plan import Plan


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
