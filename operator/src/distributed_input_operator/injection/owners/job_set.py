"""The rank of a trainer pod of a JobSet, whose Jobs own the pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed_input.api import names
from distributed_input_operator.injection.owners.job import COMPLETION_INDEX, JOB, completions_of
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
    labels_of,
    literal,
    requested_inputs,
)
from distributed_input_operator.objects.kind import Kind

JOB_SET = Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", ("get",))
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"


def rank(pod: Manifest, owners: Owners, count: int | None) -> TrainerRank | None:
    """Return the rank of a pod of a JobSet. See `rank.RANKS`."""
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
