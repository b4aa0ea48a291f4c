"""From a snapshot to conditions: what holds, why, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.status import Condition
from distributed_input_operator.autoscaling.scaling import Decision
from distributed_input_operator.budget.allocation import Grant
from distributed_input_operator.objects.snapshot import Failure, Manifest, Pod, Snapshot

READY = "Ready"
APPLIED = "Applied"
LIMITED = "ScalingLimited"
_MESSAGE_LENGTH = 1024


@dataclass(frozen=True)
class Finding:
    """A condition without its times."""

    type: str
    holds: bool
    reason: str
    message: str = ""


def findings(
    snapshot: Snapshot, grant: Grant, decision: Decision | None, failures: Iterable[Failure]
) -> list[Finding]:
    """All conditions of an input; those that tell of trouble are there only while there is some.

    Args:
        snapshot: the input as it is.
        grant: workers that there should be, and why not more.
        decision: autoscaling's, None where the input has none.
        failures: what the API server refused this time.
    """
    limits = _limits(grant, decision, snapshot.status.conditions)
    dispatcher, workers = _dispatcher(snapshot), _workers(snapshot, grant.workers, limits)
    trouble = _trouble(snapshot)
    trouble += [_applied(one, snapshot.status.conditions) for one in failures][:1]
    ready = _ready(snapshot, dispatcher, workers, trouble)
    return [ready, dispatcher, workers, *trouble, *limits]


def conditions(
    found: Iterable[Finding], before: Iterable[Condition], generation: int, now: str
) -> list[Condition]:
    """The findings as conditions; `lastTransitionTime` moves only where the status does.

    Args:
        found: what holds now.
        before: the conditions as they were last written.
        generation: of the spec that `found` speaks of.
        now: RFC 3339.
    """
    old = {one.type: one for one in before}
    made = []
    for one in found:
        status = "True" if one.holds else "False"
        last = old.get(one.type)
        same = last is not None and last.status == status
        made.append(
            Condition.model_validate(
                {
                    "type": one.type,
                    "status": status,
                    "observedGeneration": generation,
                    "lastTransitionTime": last.last_transition_time if last and same else now,
                    "reason": one.reason,
                    "message": one.message[:_MESSAGE_LENGTH],
                }
            )
        )
    return made


def _applied(failure: Failure, before: Iterable[Condition]) -> Finding:
    """The words of what is tried again change with each attempt: the first ones stay, for a status
    that changes is a reason to look again, at once.
    """
    reason, words = failure.reason, failure.message
    if failure.passing:
        said = [one.message for one in before if (one.type, one.reason) == (APPLIED, reason)]
        words = (said or [words])[0]
    return Finding(APPLIED, False, reason, words)


def _dispatcher(snapshot: Snapshot) -> Finding:
    deployment = snapshot.live("Deployment", names.dispatcher(snapshot.name))
    kind = "DispatcherReady"
    if snapshot.resource.spec.suspend:
        return Finding(kind, False, "Suspended", "spec.suspend is true")
    if _status(deployment).get("availableReplicas", 0):
        return Finding(kind, True, "Serving")
    return Finding(kind, False, "Starting", "its pod does not serve yet")


def _limits(grant: Grant, decision: Decision | None, before: Iterable[Condition]) -> list[Finding]:
    """What keeps the number of workers from what the trainers could use."""
    if grant.message:
        reason = "BudgetSpent" if grant.budget else "OthersLeave"
        said = [one.message for one in before if one.type == LIMITED and one.reason == reason]
        # Who else loses how much changes all the time: told anew only with the number itself.
        what = grant.message.partition(";")[0]
        same = [text for text in said if text.partition(";")[0] == what]
        return [Finding(LIMITED, True, reason, (same or [grant.message])[0])]
    if decision and decision.reason:
        return [Finding(LIMITED, True, decision.reason, decision.message)]
    return []


def _workers(snapshot: Snapshot, desired: int, limits: list[Finding]) -> Finding:
    kind = "WorkersAvailable"
    ready = ready_workers(snapshot)
    if snapshot.resource.spec.suspend:
        return Finding(kind, False, "Suspended", "spec.suspend is true")
    if desired == 0 and limits:
        return Finding(kind, False, limits[0].reason, limits[0].message)
    if desired == 0:
        return Finding(kind, False, "Paused", "spec.workers.replicas is 0")
    said = f"{ready} of {desired} workers serve"
    if ready == 0:
        return Finding(kind, False, "Starting", said)
    return Finding(kind, True, "AllServe" if ready >= desired else "SomeServe", said)


def ready_workers(snapshot: Snapshot) -> int:
    """How many workers serve."""
    deployment = snapshot.live("Deployment", names.worker(snapshot.name))
    return int(_status(deployment).get("readyReplicas", 0))


def _trouble(snapshot: Snapshot) -> list[Finding]:
    found = []
    pods = [*snapshot.of(names.DISPATCHER), *snapshot.of(names.WORKER)]
    if refused := _refused(snapshot):
        quota = "exceeded quota" in refused
        kind = "QuotaExceeded" if quota else "PodsRefused"
        found.append(Finding(kind, True, kind, refused))
    if failing := _words(pods, lambda pod: pod.failing):
        found.append(Finding("PodsFailing", True, "PodsFailing", failing))
    if waiting := _words(pods, lambda pod: pod.unschedulable):
        found.append(Finding("Unschedulable", True, "Unschedulable", waiting))
    return found


def _words(pods: Iterable[Pod], told: Callable[[Pod], str]) -> str:
    """What is told of the first pod that something is told of, and of how many more."""
    which = sorted((pod for pod in pods if told(pod)), key=lambda pod: pod.name)
    if not which:
        return ""
    more = f" (and {len(which) - 1} more)" if len(which) > 1 else ""
    return f"{which[0].component} pods{more}: {told(which[0])}"


def _refused(snapshot: Snapshot) -> str:
    """Why pods could not be made, in the words of the API server."""
    for name in (names.dispatcher(snapshot.name), names.worker(snapshot.name)):
        for one in _status(snapshot.live("Deployment", name)).get("conditions", []):
            if one.get("type") == "ReplicaFailure" and one.get("status") == "True":
                return str(one.get("message", ""))
    return ""


def _ready(
    snapshot: Snapshot, dispatcher: Finding, workers: Finding, trouble: list[Finding]
) -> Finding:
    if dispatcher.holds and workers.holds:
        refused = [one for one in trouble if one.type == APPLIED]
        return Finding(READY, True, refused[0].reason if refused else "Serving", workers.message)
    if dispatcher.holds and workers.reason == "Idle":
        return Finding(READY, True, "Idle", workers.message)  # the first that reads gets workers
    if snapshot.resource.spec.suspend or workers.reason in ("Paused", "BudgetSpent"):
        return Finding(READY, False, workers.reason, workers.message)
    if trouble:
        worst = trouble[-1] if trouble[-1].type == APPLIED else trouble[0]
        return Finding(READY, False, worst.reason, worst.message)
    first = workers if dispatcher.holds else dispatcher
    part = "Workers" if dispatcher.holds else "Dispatcher"
    return Finding(READY, False, f"{part}Starting", first.message)


def _status(live: Manifest) -> Mapping[str, Any]:
    found: Mapping[str, Any] = live.get("status") or {}
    return found
