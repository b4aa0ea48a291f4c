"""The owners of trainer pods: how a pod gets its index and the number of trainers from them.

Each kind has a function that returns the rank of a pod, or None if the pod's owners are not of this
kind. This module has Job and StatefulSet, whose pods have one template. `pod_sets` has the kinds
with several templates. A new kind needs such a function, an entry in `rank.RANKS`, and the right to
get its objects in the webhook's role in the chart. Kubernetes sets the index of a Job's pod as an
annotation, and that of a StatefulSet's pod as a label. The rank refers to it, so that a template
works for every pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.api import names
from distributed_input_operator.injection.trainer_pod import (
    INDEX_REMEDY,
    Manifest,
    RefusedError,
    TrainerRank,
    annotations_of,
    controller,
    labels_of,
    literal,
    metadata_reference,
)
from distributed_input_operator.objects.kind import Kind

Owners = Sequence[Manifest]
"""What controls a pod: its controller, then the controller of that object, as far as known."""


JOB = Kind("Job", "batch", "v1", "jobs", ("get",))
JOB_SET = Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", ("get",))
TRAIN_JOB = Kind("TrainJob", "trainer.kubeflow.org", "v1alpha1", "trainjobs", ("get",))
RAY_CLUSTER = Kind("RayCluster", "ray.io", "v1", "rayclusters", ("get",))
RAY_JOB = Kind("RayJob", "ray.io", "v1", "rayjobs", ("get",))
_CREATES_ONE = (
    (Kind("CronJob", "batch", "v1", "cronjobs"), JOB),
    (TRAIN_JOB, JOB_SET),
    (RAY_JOB, RAY_CLUSTER),
    (Kind("RayCronJob", "ray.io", "v1", "raycronjobs"), RAY_JOB),
)
"""Kinds that create one object for each run, and the kind of this object."""


def check_whole(owners: Owners, pods: int, count: int | None) -> None:
    """Raise RefusedError if the pods of an object may be only a part of the trainers.

    They may be if what controls the object creates further ones.

    Args:
        owners: the object, then what controls it.
        pods: number of the object's pods that read the input.
        count: number of trainers in the pod's annotation, if it has one.
    """
    for owner in owners if count != pods else ():
        above = controller(owner)
        if above is None or any(
            one.describes(above) and made.describes(owner) for one, made in _CREATES_ONE
        ):
            continue
        raise RefusedError(
            f"{title(owner)} belongs to {above['kind']} {above['name']}, which may create further "
            f"trainers: if the pods of {title(owner)} are all trainers of the input, set "
            f'annotation {names.CONSUMERS_ANNOTATION}: "{pods}" in their template. Otherwise set '
            f"it to the number of all trainers, and {INDEX_REMEDY} among all of them"
        )


def title(manifest: Manifest) -> str:
    """Return kind and name of an object, for messages."""
    meta = manifest.get("metadata") or {}
    return f"{manifest.get('kind', '')} {meta.get('name', '')}".strip()


COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def completions_of(job: Manifest, count: int | None) -> int:
    """Return the number of pods of an Indexed Job.

    `count`: number of trainers in the pod's annotation, if it has one.

    Raises:
        RefusedError: the Job gives its pods no index, or does not run all of them together.
    """
    spec, name = job["spec"], title(job)
    if spec.get("completionMode") != "Indexed":
        raise RefusedError(f"{name} gives its pods no index: set spec.completionMode: Indexed")
    parallelism = int(spec.get("parallelism", 1))
    completions = int(spec.get("completions") or parallelism)
    if parallelism < completions and count is None:
        raise RefusedError(
            f"{name} runs only {parallelism} of its {completions} pods at a time, but trainers "
            f"that share an input must run together: set spec.parallelism: {completions}, or, if "
            f'each trainer reads the whole input, annotation {names.CONSUMERS_ANNOTATION}: "1"'
        )
    return completions


def job_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a Job."""
    if not (owners and JOB.describes(owners[0])):
        return None
    spec, name = owners[0]["spec"], title(owners[0])
    one_pod = spec.get("parallelism", 1) == 1 and spec.get("completions") in (None, 1)
    if one_pod and spec.get("completionMode") != "Indexed":
        check_whole(owners, 1, count)
        return TrainerRank(literal(0), 1, name)
    completions = completions_of(owners[0], count)
    check_whole(owners, completions, count)
    index = annotations_of(pod).get(COMPLETION_INDEX, "")
    if count is None and index.isdecimal() and int(index) >= completions:
        # The Job was read before it was scaled. Its controller creates the pod again.
        raise RefusedError(f"{name} has {completions} pods, but this one has index {index}: retry")
    return TrainerRank(metadata_reference("annotations", COMPLETION_INDEX), completions, name)


STATEFUL_SET = Kind("StatefulSet", "apps", "v1", "statefulsets", ("get",))
POD_INDEX = "apps.kubernetes.io/pod-index"


def stateful_set_rank(pod: Manifest, owners: Owners, _: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a StatefulSet."""
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
