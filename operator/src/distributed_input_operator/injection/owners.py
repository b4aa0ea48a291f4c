"""The objects that own trainer pods, from which a pod gets its index and the number of trainers.

Each kind has a function that returns the rank of a pod, or None if the pod's owners are not of this
kind. A new kind needs such a function, an entry in `RANKS`, and the right to get its objects in
the webhook's role in the chart. Kubernetes sets the index of a Job's pod as an annotation, and that
of a StatefulSet's pod as a label. The rank refers to it, so that a template works for every pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distributed_input.api import names
from distributed_input_operator.injection.trainer_pod import (
    Manifest,
    RefusedError,
    TrainerRank,
    annotations_of,
    controller,
    labels_of,
    literal,
    metadata_reference,
    requested_inputs,
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

    They may be if what controls the object creates further ones. `count`: number of trainers in the
    pod's annotation, if it has one. `pods`: number of the object's pods that read the input.
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


JOB = Kind("Job", "batch", "v1", "jobs", ("get",))
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
        check_whole(owners[0], 1, count)
        return TrainerRank(literal(0), 1, name)
    completions = completions_of(owners[0], count)
    check_whole(owners[0], completions, count)
    index = annotations_of(pod).get(COMPLETION_INDEX, "")
    if count is None and index.isdecimal() and int(index) >= completions:
        # The Job was read before it was scaled. Its controller creates the pod again.
        raise RefusedError(f"{name} has {completions} pods, but this one has index {index}: retry")
    return TrainerRank(metadata_reference("annotations", COMPLETION_INDEX), completions, name)


JOB_SET = Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", ("get",))
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"


def job_set_rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a JobSet."""
    if owners and JOB_SET.describes(owners[0]):
        raise RefusedError(
            "the trainer index of a JobSet's pod is known only in the cluster: use the webhook"
        )
    if len(owners) < 2 or not (JOB.describes(owners[0]) and JOB_SET.describes(owners[1])):
        return None
    completions_of(owners[0], count)
    found = _rank_in(owners[1], pod)
    check_whole(owners[1], found.count or 0, count)
    return found


def _rank_in(jobset: Manifest, pod: Manifest) -> TrainerRank:
    """Return the rank among the pods of all replicated jobs that request the same inputs.

    The index counts through these replicated jobs in the order of the JobSet.
    """
    name, inputs = title(jobset), set(requested_inputs(pod))
    own = labels_of(pod).get(REPLICATED_JOB)
    before, size, count = None, 0, 0
    for one in jobset["spec"]["replicatedJobs"]:
        template = one["template"]["spec"]["template"]
        pods = {"metadata": template.get("metadata") or {}}
        if labels_of(pods).get(names.INJECT_LABEL) != "true":
            continue
        others = set(requested_inputs(pods))
        if one["name"] == own:
            before, size = count, _pods_per_job(one)
        if others == inputs:
            count += _pods_per_job(one) * int(one.get("replicas", 1))
        elif others & inputs:
            raise RefusedError(
                f"{name}: replicated job {one['name']} shares only "
                f"{', '.join(sorted(others & inputs))} with other replicated jobs: give them all "
                f"the same annotation {names.INPUTS_ANNOTATION}, or different inputs"
            )
    job_index = labels_of(pod).get(JOB_INDEX) or ""
    pod_index = annotations_of(pod).get(COMPLETION_INDEX) or ""
    if before is None or not (job_index.isdecimal() and pod_index.isdecimal()):
        raise RefusedError(
            f"{name}: the pod belongs to no replicated job with label {names.INJECT_LABEL}: set "
            "the label and annotations in the JobSet's pod templates"
        )
    return TrainerRank(literal(before + int(job_index) * size + int(pod_index)), count, name)


def _pods_per_job(replicated_job: Mapping[str, Any]) -> int:
    spec = replicated_job["template"]["spec"]
    return int(spec.get("completions") or spec.get("parallelism") or 1)


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


RANKS: Mapping[Kind, Callable[[Manifest, Owners, int | None], TrainerRank | None]] = {
    JOB_SET: job_set_rank,
    JOB: job_rank,
    STATEFUL_SET: stateful_set_rank,
}
"""The kinds of owners that give their pods a rank. The first one that applies is used.

The arguments are the pod or its template, the owners, and the number of trainers in the pod's
annotation, or None. The result is None if the owners are not of this kind. An owner of this kind
that gives its pods no rank is a RefusedError.
"""
