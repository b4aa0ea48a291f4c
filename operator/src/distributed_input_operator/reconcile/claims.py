"""What an input asks of the cluster's budgets, from its snapshot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from distributed_input.api import names
from distributed_input.api.resource.policy import Amount
from distributed_input_operator.autoscaling.scaling import Decision
from distributed_input_operator.budget import requests
from distributed_input_operator.budget.allocation import Claim, Key
from distributed_input_operator.budget.ledger import Ask
from distributed_input_operator.objects.snapshot import Manifest, Pod, Snapshot


def ask(snapshot: Snapshot, wanted: int, decision: Decision | None, deployment: Manifest) -> Ask:
    """What the input asks for.

    Args:
        snapshot: the input as it is.
        wanted: workers that there should be, were there room.
        decision: autoscaling's; None where a person or another autoscaler owns the number.
        deployment: the workers', as it is wanted: what one of them takes.
    """
    resource = snapshot.resource
    trainers, scaling = resource.spec.trainers, resource.spec.workers.autoscaling
    least = scaling.min_replicas if scaling else 1
    live = snapshot.live("Deployment", names.worker(snapshot.name))
    pods = workers(snapshot.pods)
    worker = _size(takes(deployment), live, pods)
    claim = Claim(
        (resource.metadata.namespace or "", snapshot.name),
        wanted=wanted,
        least=min(least, wanted),
        held=_replicas(live),
        occupied=len(pods),
        excess=_excess(pods, worker),
        cost=trainers.weight * trainers.accelerators_per_trainer * max(1, _readers(snapshot)),
        priority=trainers.priority,
        worker=worker,
        needed=decision.needed if decision else None,
    )
    labels = dict(resource.metadata.labels)
    return Ask(claim, trainers.accelerator or "", labels, _moving(live, pods))


def held(
    live: Manifest, pods: Sequence[Pod], key: Key, labels: Mapping[str, str] | None
) -> Ask | None:
    """What an input has that was not looked at yet, or that is gone; None where it has nothing.

    Args:
        live: its workers' Deployment; empty where there is none.
        pods: its workers.
        key: the input.
        labels: the input's; it keeps what it has. None: it is gone, and what it has leaves.
    """
    count = _replicas(live)
    if not count and not pods:
        return None
    worker = _size(takes(live), live, pods) if live else _largest(pods)
    excess = _excess(pods, worker)
    if labels is None:  # until the garbage collector has taken the Deployment, that makes pods
        left = max(count, len(pods))
        claim = Claim(key, 0, occupied=left, worker=worker, excess=excess)
        return Ask(claim, labels=None, moving=_moving(live, pods))
    claim = Claim(key, count, count, count, len(pods), worker=worker, excess=excess)
    return Ask(claim, labels=dict(labels))


def workers(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Those that take anything, those that leave included."""
    return tuple(one for one in pods if one.component == names.WORKER and not one.ended)


def takes(deployment: Manifest) -> Amount:
    """What one pod of a Deployment asks for: itself, thousandths of CPUs, bytes."""
    return requests.takes(deployment["spec"]["template"]["spec"])


def _replicas(live: Manifest) -> int:
    return int((live.get("spec") or {}).get("replicas", 0))


def _moving(live: Manifest, pods: Sequence[Pod]) -> bool:
    """Whether a ReplicaSet's controller may be making pods of an earlier number: it makes hundreds
    in one go, 20 a second, and says how many there are when it is through.
    """
    status = live.get("status") or {}
    seen = status.get("observedGeneration", 0) >= live.get("metadata", {}).get("generation", 0)
    there = sum(1 for one in pods if not one.terminating)
    return not (seen and status.get("replicas", 0) == there)


def _size(template: Amount, live: Manifest, pods: Sequence[Pod]) -> Amount:
    """What one worker takes: what its template asks for, or what became of that. A webhook or a
    LimitRange makes every pod larger for good: that is no excess, which goes with its pods.
    """
    status = live.get("status") or {}
    settled = status.get("updatedReplicas", 0) == status.get("replicas", 0)
    made = [one for one in pods if not one.terminating]
    if not live or not made or not settled or takes(live) != template:
        return template
    largest = _largest(made)
    return (1, max(template[1], largest[1]), max(template[2], largest[2]))


def _excess(pods: Sequence[Pod], worker: Amount) -> Amount:
    """What pods take beyond `worker` each, together."""
    more = (sum(one.takes[at] for one in pods) - len(pods) * worker[at] for at in range(3))
    workers, cpu, memory = (max(0, one) for one in more)
    return (workers, cpu, memory)


def _largest(pods: Sequence[Pod]) -> Amount:
    _, cpu, memory = (max(one.takes[at] for one in pods) for at in range(3))
    return (1, cpu, memory)


def _readers(snapshot: Snapshot) -> int:
    if snapshot.measured:
        return snapshot.measured.consumers
    return snapshot.status.live.consumers if snapshot.status.live else 0
