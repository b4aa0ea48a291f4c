"""Compute what an input requests from the cluster's budgets, from its snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from distributed_input.api import names
from distributed_input.api.resource.policy import Amount
from distributed_input_operator.autoscaling.decision import ScalingDecision
from distributed_input_operator.budget.claim import Claim, InputKey, WorkerRequest
from distributed_input_operator.budget.pod_requests import requested_amount
from distributed_input_operator.objects.snapshot import Manifest, Pod, Snapshot
from distributed_input_operator.reconcile.rollout import is_observed


def worker_request(
    snapshot: Snapshot, requested: int, decision: ScalingDecision | None, deployment: Manifest
) -> WorkerRequest:
    """Return what the input requests.

    Args:
        snapshot: the input as it is.
        requested: workers that it should have if there is room.
        decision: autoscaling's decision. None: a person or another autoscaler sets the number.
        deployment: the desired Deployment of its workers, which gives the size of one.
    """
    resource = snapshot.resource
    trainers, scaling = resource.spec.trainers, resource.spec.workers.autoscaling
    minimum = scaling.min_replicas if scaling else 1
    live = snapshot.live("Deployment", names.worker(snapshot.name))
    pods = worker_pods(snapshot.pods)
    size = _worker_size(template_amount(deployment), live, pods)
    consumers = max(1, _consumers(snapshot))
    claim = Claim(
        (resource.metadata.namespace or "", snapshot.name),
        requested=requested,
        minimum=min(minimum, requested),
        replicas=_replicas(live),
        pods=len(pods),
        excess=_excess(pods, size),
        stall_cost=float(trainers.accelerators_per_trainer * consumers),
        priority=trainers.priority,
        worker_size=size,
        needed=decision.needed if decision else None,
    )
    labels = dict(resource.metadata.labels)
    return WorkerRequest(
        claim,
        trainers.accelerator or "",
        weight=trainers.weight,
        priority_class=trainers.priority_class or "",
        labels=labels,
        namespace_labels=snapshot.namespace_labels,
        scaling=_is_scaling(live, pods),
    )


def existing_request(
    live: Manifest, pods: Sequence[Pod], key: InputKey, labels: Mapping[str, str] | None
) -> WorkerRequest | None:
    """Return a request for what an input has. None: it has nothing.

    It counts inputs that were not reconciled yet, and deleted inputs whose pods remain.

    Args:
        live: the Deployment of its workers. Empty if there is none.
        pods: its worker pods.
        key: the input.
        labels: the input's labels. None: it is deleted, and its pods terminate.
    """
    count = _replicas(live)
    if not count and not pods:
        return None
    size = _worker_size(template_amount(live), live, pods) if live else _largest(pods)
    excess = _excess(pods, size)
    if labels is None:  # The Deployment creates pods until the garbage collector deletes it.
        left = max(count, len(pods))
        claim = Claim(key, 0, pods=left, worker_size=size, excess=excess)
        incomplete = count > len(pods)
        return WorkerRequest(claim, labels=None, scaling=incomplete or _is_scaling(live, pods))
    claim = Claim(key, count, count, count, len(pods), worker_size=size, excess=excess)
    return WorkerRequest(claim, labels=dict(labels))


def worker_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return the worker pods that use resources, terminating ones included."""
    return tuple(one for one in pods if one.component == names.WORKER and not one.ended)


def template_amount(deployment: Manifest) -> Amount:
    """Return what one pod of a Deployment requests: itself, thousandths of CPUs, bytes."""
    return requested_amount(deployment["spec"]["template"]["spec"])


def _replicas(live: Manifest) -> int:
    return int((live.get("spec") or {}).get("replicas", 0))


def _is_scaling(live: Manifest, pods: Sequence[Pod]) -> bool:
    """Return whether the ReplicaSet controller may be creating pods for an earlier number.

    It creates hundreds in one run, 20 per second, and updates the status only at the end.
    """
    status = live.get("status") or {}
    running = sum(1 for one in pods if not one.terminating)
    return not (is_observed(live) and status.get("replicas", 0) == running)


def _worker_size(template: Amount, live: Manifest, pods: Sequence[Pod]) -> Amount:
    """Return what one worker uses: what its template requests, or more if its pods have more.

    A webhook or a LimitRange makes every pod larger, for good. That is not excess, which goes away
    with its pods.
    """
    status = live.get("status") or {}
    settled = status.get("updatedReplicas", 0) == status.get("replicas", 0)
    running = [one for one in pods if not one.terminating]
    if not live or not running or not settled or template_amount(live) != template:
        return template
    largest = _largest(running)
    return (1, max(template[1], largest[1]), max(template[2], largest[2]))


def _excess(pods: Sequence[Pod], size: Amount) -> Amount:
    """Return what the pods together use beyond `size` each."""
    more = (sum(one.takes[at] for one in pods) - len(pods) * size[at] for at in range(3))
    workers, cpu, memory = (max(0, one) for one in more)
    return (workers, cpu, memory)


def _largest(pods: Sequence[Pod]) -> Amount:
    _, cpu, memory = (max(one.takes[at] for one in pods) for at in range(3))
    return (1, cpu, memory)


def _consumers(snapshot: Snapshot) -> int:
    if snapshot.measured:
        return snapshot.measured.consumers
    return snapshot.status.live.consumers if snapshot.status.live else 0
