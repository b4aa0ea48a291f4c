"""From a snapshot to conditions: what holds, why, and what the user can do. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.status import Condition
from distributed_input_operator.autoscaling.decision import IDLE, PAUSED, ScalingDecision
from distributed_input_operator.budget.claim import Grant
from distributed_input_operator.objects.snapshot import (
    AUTHORITY_UNUSABLE,
    Failure,
    Manifest,
    Pod,
    Snapshot,
)
from distributed_input_operator.reconcile.pace import Turn
from distributed_input_operator.reconcile.rollout import (
    DEADLINE,
    Rollout,
    is_observed,
    refusal_message,
    rollout,
)

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
DISPATCHER_READY = "DispatcherReady"
WORKERS_AVAILABLE = "WorkersAvailable"
APPLIED = "Applied"
LIMITED = "ScalingLimited"
UNSCHEDULABLE = "Unschedulable"
UNMEASURED = "Unmeasured"
UPDATE_PENDING = "UpdatePending"
QUOTA_EXCEEDED = "QuotaExceeded"
PODS_REFUSED = "PodsRefused"
PODS_FAILING = "PodsFailing"
DATASET_FAILING = "DatasetFailing"
"""Types of conditions. Types and reasons are an interface. kstatus, which Flux uses, defines the
first three: at most one of them is True."""

PROBLEMS = (
    *(APPLIED, QUOTA_EXCEEDED, PODS_REFUSED, PODS_FAILING, UNSCHEDULABLE, UNMEASURED),
    *(AUTHORITY_UNUSABLE, DATASET_FAILING),
)
"""Types of the conditions that are present only with a problem, and that have an Event."""
APPLYING = "Applying"
INVALID_SPEC = "InvalidSpec"
SUSPENDED = "Suspended"
STARTING = "Starting"
SERVING = "Serving"
BUDGET_SPENT = "BudgetSpent"
OTHERS_LEAVE = "OthersLeave"
POLICY_UNUSABLE = "PolicyUnusable"
LOCAL = "LocalWorkers"
NO_LOCAL = "NoLocalWorkers"

_NO_WORKERS = (SUSPENDED, PAUSED, BUDGET_SPENT, OTHERS_LEAVE, POLICY_UNUSABLE, NO_LOCAL)
"""Reasons why there are no workers, and why the operator starts none."""
_PENDING: Mapping[Turn | None, Failure] = {
    Turn.WAIT: Failure(
        "WaitingForTurn",
        "the operator replaces the pods of other inputs first: these pods keep serving",
    ),
    Turn.FOLLOW: Failure(
        "OtherChange",
        "another change replaces pods of this input first: the others keep serving",
    ),
    Turn.STOPPED: Failure(
        "RolloutStopped",
        "the operator's new pods fail in other inputs, so these pods keep their template. The "
        "cluster's administrator finds those inputs in the operator's log",
    ),
}
"""Why pods keep an earlier template of the operator, and serve with it. The messages have no
numbers, which would change the status of every input that waits."""
_PARTS = ("Dispatcher", "Workers")
_MESSAGE_LENGTH = 1024


@dataclass(frozen=True)
class Finding:
    """A condition without its times."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def findings(
    snapshot: Snapshot,
    grant: Grant,
    decision: ScalingDecision | None,
    failures: Iterable[Failure],
    turn: Turn | None = None,
) -> list[Finding]:
    """Return all conditions of an input. Those that report a problem are present only with one.

    `turn` is None if pods have the operator's template, and the decision if there is no
    autoscaling.
    """
    failed = sorted(failures, key=lambda one: not one.final)
    limits = _limits(grant, decision, snapshot.status.conditions)
    dispatcher, workers = _dispatcher(snapshot), _workers(snapshot, grant.workers, limits)
    pods = _pod_problems(snapshot)
    applied = [_not_applied(one, snapshot.status.conditions) for one in failed][:1]
    rollouts = _rollouts(snapshot, grant.workers)
    unapplied = _unapplied(snapshot, failed, applied)
    ready = unapplied or _ready(dispatcher, workers, pods, rollouts)
    overdue = unapplied is None and not ready.holds and any(one.failed for one in rollouts)
    summary = summarize(
        ready,
        stalled=overdue or any(one.final for one in failed),
        resting=unapplied is None and ready.reason in (SUSPENDED, PAUSED),
    )
    others = _while_serving(snapshot, turn)
    return [*summary, dispatcher, workers, *pods, *applied, *others, *limits]


def summarize(ready: Finding, *, stalled: bool, resting: bool = False) -> list[Finding]:
    """Return the conditions that kstatus reads. They have the same reason and message.

    Stalled: it cannot become ready without a change by the user. Resting: the spec requests no
    workers, so nothing is in progress.
    """
    reconciling = not (ready.holds or stalled or resting)
    return [
        ready,
        replace(ready, type=RECONCILING, holds=reconciling),
        replace(ready, type=STALLED, holds=stalled),
    ]


def observed_generation(snapshot: Snapshot, failures: Iterable[Failure]) -> int:
    """Return the generation of the spec that the conditions are about.

    A new generation counts once the API server has accepted its objects and the Deployments'
    status is about them, or once the API server has refused it for good. Until then, the last one
    stays.
    """
    generation = snapshot.resource.metadata.generation or 0
    failed = list(failures)
    if any(one.final for one in failed):
        return generation
    if any(one.passing for one in failed) or not _is_observed(snapshot):
        return snapshot.status.observed_generation
    return generation


def conditions(
    found: Iterable[Finding], before: Iterable[Condition], generation: int, now: str
) -> list[dict[str, Any]]:
    """Return the findings as JSON. `lastTransitionTime` moves only with the status."""
    old = {one.type: one for one in before}
    result = []
    for one in found:
        status = "True" if one.holds else "False"
        last = old.get(one.type)
        same = last is not None and last.status == status
        result.append(
            {
                "type": one.type,
                "status": status,
                "observedGeneration": max(generation, 0),
                "lastTransitionTime": last.last_transition_time if last and same else now,
                "reason": one.reason,
                "message": one.message[:_MESSAGE_LENGTH],
            }
        )
    return result


def _not_applied(failure: Failure, before: Iterable[Condition]) -> Finding:
    """Report a failed write. The first message of a failure that is retried stays.

    Its message changes with each attempt, and each new status triggers a reconciliation at once.
    """
    reason, message = failure.reason, failure.message
    if failure.passing:
        same = [one.message for one in before if (one.type, one.reason) == (APPLIED, reason)]
        message = (same or [message])[0]
    return Finding(APPLIED, False, reason, message)


def _dispatcher(snapshot: Snapshot) -> Finding:
    deployment = snapshot.live("Deployment", names.dispatcher(snapshot.name))
    if snapshot.resource.spec.suspend:
        return Finding(DISPATCHER_READY, False, SUSPENDED, "spec.suspend is true")
    if _status(deployment).get("availableReplicas", 0):
        return Finding(DISPATCHER_READY, True, SERVING)
    return Finding(DISPATCHER_READY, False, STARTING, "the dispatcher's pod is not ready")


def _while_serving(snapshot: Snapshot, turn: Turn | None) -> list[Finding]:
    """Report what does not affect the pods: they serve."""
    error = snapshot.measured.failing if snapshot.measured else ""
    found = (
        (UNMEASURED, snapshot.unmeasured),
        # The trainer's program gets the error.
        (DATASET_FAILING, Failure("DatasetError", error) if error else None),
        # Its processes use the authority as it was signed before.
        (AUTHORITY_UNUSABLE, snapshot.unsigned),
        (UPDATE_PENDING, _PENDING.get(turn)),
    )
    return [Finding(kind, True, one.reason, one.message) for kind, one in found if one]


def _limits(
    grant: Grant, decision: ScalingDecision | None, before: Iterable[Condition]
) -> list[Finding]:
    """Report what limits the number of workers, if anything does."""
    if grant.message:
        reason = OTHERS_LEAVE if grant.workers < grant.target else POLICY_UNUSABLE
        if grant.budget:
            reason = BUDGET_SPENT
        written = [one.message for one in before if one.type == LIMITED and one.reason == reason]
        # The part after the semicolon, about other inputs, changes all the time: it is written
        # again only with a change of the first part, which has the numbers.
        numbers = grant.message.partition(";")[0]
        same = [text for text in written if text.partition(";")[0] == numbers]
        return [Finding(LIMITED, True, reason, (same or [grant.message])[0])]
    if decision and decision.reason:
        return [Finding(LIMITED, True, decision.reason, decision.message)]
    return []


def _workers(snapshot: Snapshot, desired: int, limits: list[Finding]) -> Finding:
    ready = ready_workers(snapshot)
    if snapshot.resource.spec.suspend:
        return Finding(WORKERS_AVAILABLE, False, SUSPENDED, "spec.suspend is true")
    if desired == 0 and limits:
        return Finding(WORKERS_AVAILABLE, False, limits[0].reason, limits[0].message)
    if desired == 0 and snapshot.resource.spec.workers.local:
        return _local_workers(snapshot)
    if desired == 0:
        return Finding(WORKERS_AVAILABLE, False, PAUSED, "spec.workers.replicas is 0")
    message = f"{ready} of {desired} workers are ready"
    if ready == 0:
        return Finding(WORKERS_AVAILABLE, False, STARTING, message)
    reason = "AllServe" if ready >= desired else "SomeServe"
    return Finding(WORKERS_AVAILABLE, True, reason, message)


def _local_workers(snapshot: Snapshot) -> Finding:
    """Report whether trainers have workers in their own pods, if there are no worker pods."""
    measured = snapshot.measured
    if measured and measured.consumers and not measured.local_workers:
        message = (
            "trainers read, but no worker in their pods has started: create pods again that are "
            "older than spec.workers.local"
        )
        return Finding(WORKERS_AVAILABLE, False, NO_LOCAL, message)
    message = "there are no worker pods: trainers read from the workers in their own pods"
    return Finding(WORKERS_AVAILABLE, True, LOCAL, message)


def ready_workers(snapshot: Snapshot) -> int:
    """Return the number of ready workers."""
    deployment = snapshot.live("Deployment", names.worker(snapshot.name))
    return int(_status(deployment).get("readyReplicas", 0))


def _pod_problems(snapshot: Snapshot) -> list[Finding]:
    found = []
    pods = [*snapshot.of(names.DISPATCHER), *snapshot.of(names.WORKER)]
    if refused := next(filter(None, map(refusal_message, _deployments(snapshot))), ""):
        quota = "exceeded quota" in refused
        kind = QUOTA_EXCEEDED if quota else PODS_REFUSED
        found.append(Finding(kind, True, kind, refused))
    if failing := _first_message(pods, lambda pod: pod.failing):
        found.append(Finding(PODS_FAILING, True, PODS_FAILING, failing))
    if waiting := _first_message(pods, lambda pod: pod.unschedulable):
        found.append(Finding(UNSCHEDULABLE, True, UNSCHEDULABLE, waiting))
    return found


def _first_message(pods: Iterable[Pod], message: Callable[[Pod], str]) -> str:
    """Return the message of the first pod that has one, and the number of other such pods."""
    affected = sorted((pod for pod in pods if message(pod)), key=lambda pod: pod.name)
    if not affected:
        return ""
    more = f" (and {len(affected) - 1} more)" if len(affected) > 1 else ""
    return f"{affected[0].component} pods{more}: {message(affected[0])}"


def _rollouts(snapshot: Snapshot, desired: int) -> tuple[Rollout, Rollout]:
    """Return the rollouts of the dispatcher and of the workers."""
    dispatcher, worker = _deployments(snapshot)
    scaling = snapshot.resource.spec.workers.autoscaling
    minimum = min(desired, scaling.min_replicas) if scaling else desired
    pods = 0 if snapshot.resource.spec.suspend else 1
    return rollout(dispatcher, pods, pods), rollout(worker, desired, minimum)


def _deployments(snapshot: Snapshot) -> tuple[Manifest, Manifest]:
    name = snapshot.name
    return (
        snapshot.live("Deployment", names.dispatcher(name)),
        snapshot.live("Deployment", names.worker(name)),
    )


def _is_observed(snapshot: Snapshot) -> bool:
    return all(map(is_observed, _deployments(snapshot)))


def _unapplied(
    snapshot: Snapshot, failures: list[Failure], applied: list[Finding]
) -> Finding | None:
    """Return Ready if the objects in the cluster are not, or may not be, those of the spec."""
    generation = snapshot.resource.metadata.generation or 0
    current = snapshot.status.observed_generation == generation
    # A request that is retried does not affect pods that serve this generation already.
    if failures and not (current and all(one.passing for one in failures)):
        return replace(applied[0], type=READY)
    if _is_observed(snapshot):
        return None
    for last in snapshot.status.conditions:
        if last.type == READY and last.status == "True" and current:
            return Finding(READY, True, last.reason, last.message)
    return Finding(READY, False, APPLYING, f"generation {generation} of the spec is being applied")


def _ready(
    dispatcher: Finding,
    workers: Finding,
    problems: list[Finding],
    rollouts: tuple[Rollout, Rollout],
) -> Finding:
    """Summarize the other conditions in the condition Ready."""
    if rollouts[0].complete and workers.reason == IDLE:
        return Finding(READY, True, IDLE, workers.message)  # The first consumer starts workers.
    if workers.reason in _NO_WORKERS:
        return Finding(READY, False, workers.reason, workers.message)
    missing = [
        _incomplete(part, one, state)
        for part, one, state in zip(_PARTS, (dispatcher, workers), rollouts, strict=True)
        if not state.complete
    ]
    # Autoscaling may request more workers than there are nodes. Those that exist serve.
    serious = problems if missing else [one for one in problems if one.type != UNSCHEDULABLE]
    if serious:
        return replace(serious[0], type=READY, holds=False)
    return missing[0] if missing else Finding(READY, True, SERVING, workers.message)


def _incomplete(part: str, one: Finding, state: Rollout) -> Finding:
    if state.failed:
        return Finding(READY, False, DEADLINE, f"{one.message}: {state.failed}")
    message = one.message
    if state.older:
        message = f"{state.updated} pods have the latest spec, {state.older} have an earlier one"
    return Finding(READY, False, f"{part}{STARTING}", message)


def _status(live: Manifest) -> Mapping[str, Any]:
    status: Mapping[str, Any] = live.get("status") or {}
    return status
