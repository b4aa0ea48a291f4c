"""The rank of a trainer pod from its StatefulSet."""

from __future__ import annotations

from distributed_input_operator.injection.owners.owner import Owners, title
from distributed_input_operator.injection.trainer_pod import (
    Manifest,
    RefusedError,
    TrainerRank,
    controller,
    labels_of,
    literal,
    metadata_reference,
)
from distributed_input_operator.objects.kind import Kind

STATEFUL_SET = Kind("StatefulSet", "apps", "v1", "statefulsets", ("get",))
POD_INDEX = "apps.kubernetes.io/pod-index"


def rank(pod: Manifest, owners: Owners, _: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a StatefulSet. See `rank.RANKS`."""
    if not (owners and STATEFUL_SET.describes(owners[0])):
        return None
    if controller(owners[0]):
        return None  # The controller may have further StatefulSets.
    spec, name = owners[0]["spec"], title(owners[0])
    count, start = int(spec.get("replicas", 1)), int((spec.get("ordinals") or {}).get("start", 0))
    if start == 0:
        return TrainerRank(metadata_reference("labels", POD_INDEX), count, name)
    ordinal = labels_of(pod).get(POD_INDEX) or pod["metadata"].get("name", "").rpartition("-")[2]
    if not ordinal.isdecimal():
        raise RefusedError(
            f"{name}: spec.ordinals.start is {start}, so the index is known only for a running "
            "pod: use the webhook, or start at 0"
        )
    return TrainerRank(literal(int(ordinal) - start), count, name)
