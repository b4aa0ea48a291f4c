"""The index of a trainer pod, and the number of trainers.

`trainer_rank` uses the first of these sources that applies:

1. the pod's annotations,
2. TF_CONFIG,
3. the pod's owners, see `RANKS`,
4. the TPU slice,
5. a pod without an owner: it is the only trainer.

The number of processes that read in each pod is in an annotation, because it depends on the command
of the container: what controls the pod may name another one.

If no source applies, the pod is refused. A guess could give the rows of one trainer to another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from distributed_input.api import names
from distributed_input.api.errors import ConfigError
from distributed_input.api.flags import ranks_per_trainer
from distributed_input_operator.injection import pod_sets
from distributed_input_operator.injection.owners import (
    JOB,
    JOB_SET,
    RAY_CLUSTER,
    RAY_JOB,
    STATEFUL_SET,
    TRAIN_JOB,
    Owners,
    job_rank,
    stateful_set_rank,
    title,
)
from distributed_input_operator.injection.pod_sets import (
    LEADER_WORKER_SET,
    MPI_JOB,
    PYTORCH_JOB,
    VOLCANO_JOB,
)
from distributed_input_operator.injection.trainer_pod import (
    RANK_REMEDY,
    Manifest,
    RefusedError,
    TrainerRank,
    annotated_index,
    annotated_number,
    annotations_of,
    controller,
    env,
    env_text,
    literal,
    parse_number,
)
from distributed_input_operator.objects.kind import Kind

RANKS: Mapping[Kind, Callable[[Manifest, Owners, int | None], TrainerRank | None]] = {
    JOB_SET: pod_sets.job_set_rank,
    PYTORCH_JOB: pod_sets.pytorch_job_rank,
    MPI_JOB: pod_sets.mpi_job_rank,
    RAY_CLUSTER: pod_sets.ray_cluster_rank,
    LEADER_WORKER_SET: pod_sets.leader_worker_set_rank,
    VOLCANO_JOB: pod_sets.volcano_job_rank,
    JOB: job_rank,
    STATEFUL_SET: stateful_set_rank,
}
"""The kinds of owners that give their pods a rank. The first one that applies is used.

The arguments are the pod or its template, the owners, and the number of trainers in the pod's
annotation, or None. The result is None if the owners are not of this kind. An owner of this kind
that gives its pods no rank is a RefusedError.
"""
OWNERS = (*RANKS, TRAIN_JOB, RAY_JOB)
"""The kinds of owners that are read. The last ones create owners, and may be one of several."""
_TRAINER_TASKS = ("chief", "master", "worker")
"""TF_CONFIG's task types that read inputs, in the order of their indices."""
_OTHER_TASKS = ("evaluator", "ps")
"""TF_CONFIG's task types that read no input."""


@dataclass(frozen=True)
class TfTask:
    """The cluster and the task of a TF_CONFIG, as far as they are given."""

    cluster: dict[str, Any]
    type: Any
    index: Any


def reads_no_input(pod: Manifest, owners: Owners = ()) -> bool:
    """Whether the pod reads no input: TF_CONFIG's evaluator and ps, or the launcher of an MPIJob.

    Raises RefusedError.
    """
    task = _tf_task(pod)
    return (task is not None and task.type in _OTHER_TASKS) or pod_sets.is_launcher(pod, owners)


def rank_from_tf_config(pod: Manifest) -> TrainerRank | None:
    """Return the rank from TF_CONFIG, or None if the pod has none with a literal value.

    The index counts through the tasks chief, master and worker, in this order.

    Raises:
        RefusedError: TF_CONFIG is invalid.
    """
    task = _tf_task(pod)
    if task is None:
        return None
    lists = [task.cluster.get(kind, []) for kind in _TRAINER_TASKS]
    if task.type not in _TRAINER_TASKS or type(task.index) is not int or task.index < 0:
        raise RefusedError(
            f"TF_CONFIG: task has type {json.dumps(task.type)} and index "
            f"{json.dumps(task.index)}: use one of the types "
            f"{', '.join((*_TRAINER_TASKS, *_OTHER_TASKS))} and an integer from 0"
        )
    if not all(isinstance(one, list) for one in lists):
        return TrainerRank(literal(task.index), None, "a TF_CONFIG without a list of all workers")
    place = _TRAINER_TASKS.index(task.type)
    if task.index >= len(lists[place]):
        raise RefusedError(
            f"TF_CONFIG: task has index {task.index}, but cluster lists {len(lists[place])} of "
            f"type {task.type}: correct one of them"
        )
    before = sum(map(len, lists[:place]))
    return TrainerRank(literal(before + task.index), sum(map(len, lists)), "TF_CONFIG")


def rank_from_tpu(pod: Manifest) -> TrainerRank | None:
    """Return the rank from the pod's place in one or several TPU slices, or None without TPUs.

    Raises:
        RefusedError: a variable is invalid, or one is missing for several slices.
    """
    worker = env(pod, "TPU_WORKER_ID")
    if worker is None:
        return None
    hosts = env_text(pod, "TPU_WORKER_HOSTNAMES")
    count = len(hosts.split(",")) if hosts else None
    slices = parse_number(env_text(pod, "MEGASCALE_NUM_SLICES") or "1", "MEGASCALE_NUM_SLICES")
    if "value" in worker:
        worker = literal(parse_number(worker["value"], "TPU_WORKER_ID"))
    if slices == 1:
        return TrainerRank(worker, count, "TPU_WORKER_ID")
    slice_id = env_text(pod, "MEGASCALE_SLICE_ID")
    if count is None or "value" not in worker or not slice_id:
        raise RefusedError(
            f"MEGASCALE_NUM_SLICES is {slices}, so TPU_WORKER_ID, TPU_WORKER_HOSTNAMES and "
            f"MEGASCALE_SLICE_ID must have literal values: set them, or {RANK_REMEDY}"
        )
    index = parse_number(slice_id, "MEGASCALE_SLICE_ID") * count + int(worker["value"])
    return TrainerRank(literal(index), slices * count, "TPU_WORKER_ID and MEGASCALE_SLICE_ID")


def _tf_task(pod: Manifest) -> TfTask | None:
    """Return TF_CONFIG's task, or None if TF_CONFIG is unset or expanded only in the pod."""
    text = env_text(pod, "TF_CONFIG")
    if not text.strip() or "$(" in text:
        return None
    try:
        config = json.loads(text)
        cluster, task = config.get("cluster") or {}, config.get("task") or {}
        found = TfTask(dict(cluster), task.get("type"), task.get("index", 0))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise RefusedError(
            f"TF_CONFIG: not a valid TensorFlow configuration: {error}: correct its JSON"
        ) from None
    return found if cluster else None


def trainer_rank(pod: Manifest, owners: Owners) -> TrainerRank | None:
    """Return the rank of a pod, or None if it reads no input.

    The owners are what controls the pod, as far as `OWNERS` has their kinds.

    Raises:
        RefusedError: no source has index and count, or a source is inconsistent.
    """
    if reads_no_input(pod, owners):
        return None
    index = annotated_index(pod)
    count = annotated_number(pod, names.CONSUMERS_ANNOTATION, minimum=1)
    if index is None and count == 1:
        index = literal(0)
    found = TrainerRank(index, count, "annotations") if index is not None else None
    found = found or rank_from_tf_config(pod)
    if found is None:
        pod_sets.check_is_pod(pod, owners)
        found = next(filter(None, (rank(pod, owners, count) for rank in RANKS.values())), None)
    if found is None and not (owners and controller(owners[-1])):
        # What controls the owner may have further slices.
        found = rank_from_tpu(pod)
    found = found or _single_pod(pod, owners)
    text = annotations_of(pod).get(names.RANKS_ANNOTATION, "1")
    try:
        ranks, span = ranks_per_trainer(text, f"annotation {names.RANKS_ANNOTATION}")
    except ConfigError as error:
        raise RefusedError(str(error)) from None
    return _checked(replace(found, count=count or found.count, ranks=ranks, span=span))


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
    if rank.count % rank.span:
        raise RefusedError(
            f"annotation {names.RANKS_ANNOTATION}: {rank.ranks_per_trainer}: {rank.count} trainers "
            f"(from {rank.source}) cannot be divided among ranks of {rank.span} trainers each: use "
            f"a multiple of {rank.span}"
        )
    return rank
