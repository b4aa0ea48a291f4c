"""The index of a trainer pod, and the number of trainers.

`trainer_rank` uses the first of these sources that applies:

1. the pod's annotations,
2. TF_CONFIG,
3. the pod's owners, see `owners.RANKS`,
4. the TPU slice,
5. a pod without an owner: it is the only trainer.

If no source applies, the pod is refused. A guess could give the rows of one trainer to another.
"""

from __future__ import annotations

from dataclasses import replace

from distributed_input.api import names
from distributed_input_operator.injection.environment import (
    rank_from_tf_config,
    rank_from_tpu,
    reads_no_input,
)
from distributed_input_operator.injection.owners import RANKS, Owners, title
from distributed_input_operator.injection.trainer_pod import (
    RANK_REMEDY,
    Manifest,
    RefusedError,
    TrainerRank,
    annotated_number,
    controller,
    literal,
)


def trainer_rank(pod: Manifest, owners: Owners) -> TrainerRank | None:
    """Return the rank of a pod, or None if it reads no input: TF_CONFIG's evaluator and ps.

    The owners are what controls the pod, as far as `owners.RANKS` has its kinds.

    Raises:
        RefusedError: no source has index and count, or a source is inconsistent.
    """
    if reads_no_input(pod):
        return None
    index = annotated_number(pod, names.CONSUMER_INDEX_ANNOTATION, minimum=0)
    count = annotated_number(pod, names.CONSUMERS_ANNOTATION, minimum=1)
    if index is None and count == 1:
        index = 0
    found = TrainerRank(literal(index), count, "annotations") if index is not None else None
    found = found or rank_from_tf_config(pod)
    found = found or next(filter(None, (rank(pod, owners, count) for rank in RANKS.values())), None)
    if found is None and not (owners and controller(owners[-1])):
        # What controls the owner may have further slices.
        found = rank_from_tpu(pod)
    found = found or _single_pod(pod, owners)
    return _checked(replace(found, count=count or found.count))


def _single_pod(pod: Manifest, owners: Owners) -> TrainerRank:
    owner = controller(pod)
    if owner is None and not owners:
        return TrainerRank(literal(0), 1, "a pod without owner")
    known = [title(one) for one in owners]
    above = controller(owners[-1]) if owners else owner
    unknown = [f"{above['kind']} {above['name']}"] if above else []
    raise RefusedError(
        "Cannot determine this pod's trainer index and count from its owner "
        f"{' of '.join([*known, *unknown])}: {RANK_REMEDY}"
    )


def _checked(rank: TrainerRank) -> TrainerRank:
    if rank.count is None:
        raise RefusedError(
            f"Cannot determine the number of trainers from {rank.source}: set annotation "
            f'{names.CONSUMERS_ANNOTATION}: "N"'
        )
    index = rank.index.get("value")
    if index is not None and int(index) >= rank.count:
        raise RefusedError(
            f"trainer index {index}, from {rank.source}, is not less than the number of trainers, "
            f"{rank.count}: set annotation {names.CONSUMERS_ANNOTATION} to the number of all "
            f"trainers, or use an index from 0 to {rank.count - 1}"
        )
    return rank
