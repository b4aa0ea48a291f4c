"""What an input asks of the cluster's budgets, from its snapshot. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from distributed_input_operator.core import names, requests
from distributed_input_operator.core.budget import Amount, Claim
from distributed_input_operator.core.ledger import Ask
from distributed_input_operator.core.scaling import Decision
from distributed_input_operator.core.snapshot import Manifest, Snapshot


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
    least = scaling.min_replicas if scaling and decision else 1
    live = snapshot.live("Deployment", names.worker(snapshot.name)).get("spec") or {}
    claim = Claim(
        (resource.metadata.namespace or "", snapshot.name),
        wanted=wanted,
        least=min(least, wanted),
        held=int(live.get("replicas", 0)),
        occupied=sum(1 for pod in snapshot.pods if pod.component == names.WORKER and not pod.ended),
        cost=trainers.weight * trainers.accelerators_per_trainer * max(1, _readers(snapshot)),
        priority=trainers.priority,
        worker=takes(deployment),
        needed=decision.needed if decision else None,
    )
    return Ask(claim, trainers.accelerator or "", dict(resource.metadata.labels))


def held(live: Manifest, pods: int, key: tuple[str, str], labels: Mapping[str, str]) -> Ask | None:
    """What an input has that was not looked at yet: it keeps it; None where it has nothing."""
    count = int((live.get("spec") or {}).get("replicas", 0))
    if not count and not pods:
        return None
    return Ask(Claim(key, count, count, count, pods, worker=takes(live)), "", dict(labels))


def takes(deployment: Manifest) -> Amount:
    """What one pod of a Deployment asks for: itself, thousandths of CPUs, bytes."""
    return requests.takes(deployment["spec"]["template"]["spec"])


def _readers(snapshot: Snapshot) -> int:
    if snapshot.measured:
        return snapshot.measured.consumers
    return snapshot.status.live.consumers if snapshot.status.live else 0
