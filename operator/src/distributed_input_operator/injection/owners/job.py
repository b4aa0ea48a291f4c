"""The rank of a trainer pod from its Job.

Kubernetes sets a pod's index as an annotation. The rank refers to it, so that the same pod template
works for every pod. The number of trainers is in the Job's spec.
"""

from __future__ import annotations

from distributed_input.api import names
from distributed_input_operator.injection.owners.owner import (
    Owners,
    check_whole,
    title,
)
from distributed_input_operator.injection.trainer_pod import (
    Manifest,
    RefusedError,
    TrainerRank,
    annotations_of,
    literal,
    metadata_reference,
)
from distributed_input_operator.objects.kind import Kind

JOB = Kind("Job", "batch", "v1", "jobs", ("get",))
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def completions_of(job: Manifest, count: int | None) -> int:
    """Return the number of pods of an Indexed Job.

    Args:
        job: the Job.
        count: the number of trainers in the pod's annotation, or None.

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


def rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a Job. See `rank.RANKS`."""
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
