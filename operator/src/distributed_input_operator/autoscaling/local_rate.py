"""The part of the trainers' demand that the workers in their own pods can meet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from distributed_input.api.local_workers import PLANNED_SHARE


def met_locally(demand: Iterable[tuple[str, float]], capacity: Mapping[str, float]) -> float:
    """Return the rows per second that need no worker pod.

    A worker in a trainer's pod serves only this pod. So one pod's spare capacity does not meet
    another pod's demand.

    Laws: the result is at most the whole demand, and at most the whole capacity. It decreases with
    no pod's capacity.

    Args:
        demand: pod and rows per second of each consumer. Several consumers may be in one pod.
        capacity: rows per second that the workers in each pod can produce.
    """
    by_pod: dict[str, float] = {}
    for pod, rate in demand:
        by_pod[pod] = by_pod.get(pod, 0.0) + rate
    return sum(min(rate, PLANNED_SHARE * capacity.get(pod, 0.0)) for pod, rate in by_pod.items())
