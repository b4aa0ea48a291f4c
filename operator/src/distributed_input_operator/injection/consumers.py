"""Which trainer a pod is, and of how many. Pure.

Asked in this order: annotations, TF_CONFIG, a Job (alone or of a JobSet), a StatefulSet, the TPU
slice; a pod that nothing runs is alone. Where nothing tells, the pod is refused: a guess would give
one trainer's rows to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from distributed_input.api import names
from distributed_input_operator.injection.topology import by_tf_config, by_tpu, without_input
from distributed_input_operator.injection.trainers import (
    REMEDY,
    Consumer,
    Manifest,
    RefusedError,
    controller,
    literal,
    stated,
)
from distributed_input_operator.injection.workloads import by_job, by_stateful_set


def consumer(pod: Manifest, owners: Mapping[str, Manifest]) -> Consumer | None:
    """Which trainer the pod is; None where it reads no input: TF_CONFIG's evaluator and ps.

    Args:
        pod: as it is created, or the template of the one in `owners`.
        owners: what `workloads.owners_of` names, by kind.

    Raises:
        RefusedError: nothing tells, or what tells makes no sense.
    """
    if without_input(pod):
        return None
    index = stated(pod, names.CONSUMER_INDEX_ANNOTATION, least=0)
    count = stated(pod, names.CONSUMERS_ANNOTATION, least=1)
    if index is None and count == 1:
        index = 0
    found = Consumer(literal(index), count, "annotations") if index is not None else None
    found = found or (
        by_tf_config(pod)
        or by_job(pod, owners, count)
        or by_stateful_set(pod, owners)
        or by_tpu(pod)
        or _alone(pod, owners)
    )
    return _checked(replace(found, count=count or found.count))


def _alone(pod: Manifest, owners: Mapping[str, Manifest]) -> Consumer:
    owner = controller(pod)
    if owner is None and not owners:
        return Consumer(literal(0), 1, "being alone")
    who = f"{owner['kind']} {owner['name']}" if owner else "what runs it"
    raise RefusedError(f"{who} does not tell which of how many trainers this pod is: {REMEDY}")


def _checked(found: Consumer) -> Consumer:
    if found.count is None:
        raise RefusedError(
            f"how many trainers there are cannot be known from {found.known_by}: set annotation "
            f'{names.CONSUMERS_ANNOTATION}: "N"'
        )
    index = found.index.get("value")
    if index is not None and int(index) >= found.count:
        raise RefusedError(
            f"the pod is trainer {index} by {found.known_by}, and there are {found.count}, from 0 "
            f"to {found.count - 1}: does annotation {names.CONSUMERS_ANNOTATION} state all of them?"
        )
    return found
