"""What the kinds of owners share."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.api import names
from distributed_input_operator.injection.trainer_pod import (
    Manifest,
    RefusedError,
    controller,
)
from distributed_input_operator.objects.kind import Kind

Owners = Sequence[Manifest]
"""What controls a pod: its controller, then the controller of that object, as far as known."""


_CREATES_ONE = (
    Kind("CronJob", "batch", "v1", "cronjobs"),
    Kind("TrainJob", "trainer.kubeflow.org", "v1alpha1", "trainjobs"),
)
"""Kinds that create one object for each run."""


def check_whole(owner: Manifest, pods: int, count: int | None) -> None:
    """Raise RefusedError if the pods of an object may be only a part of the trainers.

    They may be if what controls the object creates further ones.

    Args:
        owner: the object.
        pods: the number of its pods that read the input.
        count: the number of trainers in the pod's annotation, or None.
    """
    above = controller(owner)
    if count == pods or above is None or any(one.describes(above) for one in _CREATES_ONE):
        return
    raise RefusedError(
        f"{title(owner)} belongs to {above['kind']} {above['name']}, which may create further "
        f"trainers: if the pods of {title(owner)} are all trainers of the input, set annotation "
        f'{names.CONSUMERS_ANNOTATION}: "{pods}" in their template. Otherwise also set '
        f"{names.CONSUMER_INDEX_ANNOTATION} in each pod"
    )


def title(manifest: Manifest) -> str:
    """Return kind and name of an object, for messages."""
    meta = manifest.get("metadata") or {}
    return f"{manifest.get('kind', '')} {meta.get('name', '')}".strip()
