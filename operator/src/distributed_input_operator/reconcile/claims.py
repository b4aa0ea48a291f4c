"""Compute what an input requests from the cluster's budgets, from its snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from distributed_input.api import names
from distributed_input.api.resource.policy import NOTHING, Amount
from distributed_input.api.resource.scalars import quantity
from distributed_input_operator.autoscaling.decision import ScalingDecision
from distributed_input_operator.budget.claim import Claim, InputKey, WorkerRequest
from distributed_input_operator.budget.pod_requests import requested_amount
from distributed_input_operator.objects.snapshot import Manifest, Pod, Snapshot
from distributed_input_operator.reconcile.rollout import is_observed


def worker_request(
    snapshot: Snapshot,
    requested: int,
    decision: ScalingDecision | None,
    deployment: Manifest,
    dispatcher: Manifest,
) -> WorkerRequest:
    """Return what the input requests.

    Without a decision of autoscaling, a person or another autoscaler sets the number. The desired
    Deployments give the sizes of pods.
    """
    resource = snapshot.resource
    trainers, scaling = resource.spec.trainers, resource.spec.workers.autoscaling
    minimum = scaling.min_replicas if scaling else 1
    live = snapshot.live("Deployment", names.worker(snapshot.name))
    pods = worker_pods(snapshot.pods)
    others = snapshot.settings.resources
    size = _worker_size(template_amount(deployment, others), live, pods, others)
    consumers = max(1, _consumers(snapshot))
    existing = snapshot.live("Deployment", names.dispatcher(snapshot.name))
    started = _dispatcher_amount(existing, snapshot.pods, others) is not None
    first = _dispatcher_amount(dispatcher, snapshot.pods if started else (), others)
    key = resource.metadata.namespace or "", snapshot.name
    found = _request(key, live, pods, size, first, others)
    claim = replace(
        found.claim,
        requested=requested,
        minimum=min(minimum, requested),
        stall_cost=float(trainers.accelerators_per_trainer * consumers),
        priority=trainers.priority,
        started=started,
        needed=decision.needed if decision else None,
    )
    return replace(
        found,
        claim=claim,
        accelerator=trainers.accelerator or "",
        weight=float(quantity(trainers.weight)),
        priority_class=trainers.priority_class or "",
        labels=dict(resource.metadata.labels),
        namespace_labels=snapshot.namespace_labels,
    )


def existing_request(
    live: Manifest,
    pods: Sequence[Pod],
    key: InputKey,
    labels: Mapping[str, str] | None,
    dispatcher: Manifest = MappingProxyType({}),
    others: Sequence[str] = (),
    namespace_labels: Mapping[str, str] | None = None,
) -> WorkerRequest | None:
    """Return a request for what an input has. None: it has nothing.

    It counts inputs that were not reconciled yet, and deleted inputs whose pods remain. Deployments
    are empty if there are none. Labels are None for a deleted input, whose pods terminate.
    """
    first, pods = _dispatcher_amount(dispatcher, pods, others), worker_pods(pods)
    if not _replicas(live) and not pods and first is None:
        return None
    if live:
        size = _worker_size(template_amount(live, others), live, pods, others)
    else:
        size = _largest(pods) if pods else (1, 0, 0)
    found = replace(
        _request(key, live, pods, size, first, others), namespace_labels=namespace_labels
    )
    if labels is not None:
        return replace(found, labels=dict(labels))
    # The Deployment creates pods until the garbage collector deletes it.
    claim = replace(
        found.claim, requested=0, minimum=0, replicas=0, leaving=found.claim.present, started=True
    )
    scaling = found.scaling or found.incomplete
    return replace(found, claim=claim, labels=None, scaling=scaling, incomplete=False)


def _request(
    key: InputKey,
    live: Manifest,
    pods: Sequence[Pod],
    size: Amount,
    dispatcher: Amount | None,
    others: Sequence[str],
) -> WorkerRequest:
    """Return a request for what an input has. The arguments are those of `existing_request`."""
    count = _replicas(live)
    claim = Claim(
        key,
        requested=count,
        minimum=count,
        replicas=count,
        leaving=_leaving(live, pods),
        excess=_excess(pods, size),
        worker_size=size,
        dispatcher=NOTHING if dispatcher is None else dispatcher,
        started=dispatcher is not None,
    )
    return WorkerRequest(
        claim,
        scaling=_is_scaling(live, pods),
        incomplete=count > _running(pods),
        resources=tuple(others),
    )


def worker_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the worker pods that use resources, terminating ones included."""
    return tuple(one for one in pods if one.component == names.WORKER and not one.ended)


def template_amount(deployment: Manifest, others: Sequence[str] = ()) -> Amount:
    """Return what one pod of a Deployment requests. See `requested_amount`."""
    return requested_amount(deployment["spec"]["template"]["spec"], others)


def _dispatcher_amount(
    deployment: Manifest, pods: Iterable[Pod], others: Sequence[str]
) -> Amount | None:
    """Return what the dispatcher of an input uses, which may be nothing. None: it has none."""
    found = [one.takes for one in pods if one.component == names.DISPATCHER and not one.ended]
    if _replicas(deployment):
        found.append(template_amount(deployment, others))
    if not found:
        return None
    _, *most = (max(parts) for parts in zip(*found, strict=True))
    return (0, *most)


def _replicas(live: Manifest) -> int:
    return int((live.get("spec") or {}).get("replicas", 0))


def _leaving(live: Manifest, pods: Sequence[Pod]) -> int:
    """Return how many pods terminate, or are about to because the Deployment has fewer replicas."""
    return len(pods) - min(_running(pods), _replicas(live))


def _running(pods: Sequence[Pod]) -> int:
    return sum(1 for one in pods if not one.terminating)


def _is_scaling(live: Manifest, pods: Sequence[Pod]) -> bool:
    """Return whether the ReplicaSet controller may be creating pods for an earlier number.

    It creates hundreds in one run, 20 per second, and updates the status only at the end.
    """
    status = live.get("status") or {}
    return not (is_observed(live) and status.get("replicas", 0) == _running(pods))


def _worker_size(
    template: Amount, live: Manifest, pods: Sequence[Pod], others: Sequence[str]
) -> Amount:
    """Return what one worker uses: what its template requests, or more if its pods have more.

    A webhook or a LimitRange makes every pod larger, for good. That is not excess, which goes away
    with its pods.
    """
    status = live.get("status") or {}
    settled = status.get("updatedReplicas", 0) == status.get("replicas", 0)
    running = [one for one in pods if not one.terminating]
    if not live or not running or not settled or template_amount(live, others) != template:
        return template
    return tuple(map(max, template, _largest(running)))


def _excess(pods: Sequence[Pod], size: Amount) -> Amount:
    """Return what the pods together use beyond `size` each."""
    if not pods:
        return NOTHING
    sums = (sum(parts) for parts in zip(*(one.takes for one in pods), strict=True))
    return tuple(max(0, used - len(pods) * part) for used, part in zip(sums, size, strict=True))


def _largest(pods: Sequence[Pod]) -> Amount:
    _, *most = (max(parts) for parts in zip(*(one.takes for one in pods), strict=True))
    return (1, *most)


def _consumers(snapshot: Snapshot) -> int:
    if snapshot.measured:
        return snapshot.measured.consumers
    return snapshot.status.trainers.reading if snapshot.status.trainers else 0
