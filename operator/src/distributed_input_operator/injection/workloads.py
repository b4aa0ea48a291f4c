"""The rank of a trainer pod from its owner: a Job, a JobSet or a StatefulSet.

Kubernetes sets a pod's index as a label or annotation. The rank refers to it, so that the same pod
template works for every pod. The number of trainers is in the owner's spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names
from distributed_input_operator.injection.trainer_pod import (
    RANK_REMEDY,
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

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"


@dataclass(frozen=True)
class Owner:
    """The kind and name of an object that controls a pod, directly or through a Job."""

    kind: str
    """Job, JobSet or StatefulSet"""
    name: str


def owners_of(pod: Manifest) -> list[Owner]:
    """Return the objects that the rank of a pod depends on."""
    owner = controller(pod)
    if owner is None or owner["kind"] not in ("Job", "StatefulSet"):
        return []
    jobset = labels_of(pod).get(JOBSET)
    direct = Owner(owner["kind"], owner["name"])
    return [direct, Owner("JobSet", jobset)] if jobset and direct.kind == "Job" else [direct]


def rank_from_job(
    pod: Manifest, owners: Mapping[str, Manifest], count: int | None
) -> TrainerRank | None:
    """Return the rank from a Job, alone or in a JobSet, or None without a Job.

    Args:
        pod: the pod or its template.
        owners: the owners by kind.
        count: the number of trainers in the pod's annotation, or None.

    Raises:
        RefusedError: the Job gives its pods no index, or does not run all of them together.
    """
    job = owners.get("Job")
    if job is None:
        return None
    spec, title = job["spec"], _title("Job", job)
    parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
    jobset = owners.get("JobSet")
    if spec.get("completionMode") != "Indexed":
        if parallelism == 1 and completions in (None, 1) and jobset is None:
            return TrainerRank(literal(0), 1, title)
        raise RefusedError(f"{title} gives its pods no index: set spec.completionMode: Indexed")
    completions = int(completions or parallelism)
    if parallelism < completions and count is None:
        raise RefusedError(
            f"{title} runs only {parallelism} of its {completions} pods at a time, but trainers "
            f"that share an input must run together: set spec.parallelism: {completions}, or, if "
            f'each trainer reads the whole input, annotation {names.CONSUMERS_ANNOTATION}: "1"'
        )
    if jobset is not None:
        return _rank_in_jobset(pod, jobset)
    return TrainerRank(metadata_reference("annotations", COMPLETION_INDEX), completions, title)


def rank_from_stateful_set(pod: Manifest, owners: Mapping[str, Manifest]) -> TrainerRank | None:
    """Return the rank from a StatefulSet, or None without one.

    Raises:
        RefusedError: the StatefulSet has a controller, which may have further StatefulSets, or
            its ordinals do not start at 0 and the pod is only a template.
    """
    stateful_set = owners.get("StatefulSet")
    if stateful_set is None:
        return None
    spec, title = stateful_set["spec"], _title("StatefulSet", stateful_set)
    if parent := controller(stateful_set):
        raise RefusedError(
            f"{title} belongs to {parent['kind']} {parent['name']}, which may have further "
            f"StatefulSets: {RANK_REMEDY}"
        )
    count, start = int(spec.get("replicas", 1)), int((spec.get("ordinals") or {}).get("start", 0))
    if start == 0:
        return TrainerRank(metadata_reference("labels", POD_INDEX), count, title)
    ordinal = labels_of(pod).get(POD_INDEX) or pod["metadata"].get("name", "").rpartition("-")[2]
    if not ordinal.isdecimal():
        raise RefusedError(
            f"{title}: spec.ordinals.start is {start}, so the index is known only for a running "
            "pod: use the webhook, or start at 0"
        )
    return TrainerRank(literal(int(ordinal) - start), count, title)


def _rank_in_jobset(pod: Manifest, jobset: Manifest) -> TrainerRank:
    """Return the rank among the pods of all replicated jobs that request the same inputs.

    The index counts through these replicated jobs in the order of the JobSet.
    """
    title, inputs = _title("JobSet", jobset), set(requested_inputs(pod))
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
                f"{title}: replicated job {one['name']} shares only "
                f"{', '.join(sorted(others & inputs))} with other replicated jobs: give them all "
                f"the same annotation {names.INPUTS_ANNOTATION}, or different inputs"
            )
    job_index = labels_of(pod).get(JOB_INDEX) or ""
    pod_index = annotations_of(pod).get(COMPLETION_INDEX) or ""
    if before is None or not (job_index.isdecimal() and pod_index.isdecimal()):
        raise RefusedError(
            f"{title}: the pod belongs to no replicated job with label {names.INJECT_LABEL}: set "
            "the label and annotations in the JobSet's pod templates"
        )
    return TrainerRank(literal(before + int(job_index) * size + int(pod_index)), count, title)


def _pods_per_job(replicated_job: Mapping[str, Any]) -> int:
    spec = replicated_job["template"]["spec"]
    return int(spec.get("completions") or spec.get("parallelism") or 1)


def _title(kind: str, manifest: Manifest) -> str:
    return f"{kind} {manifest['metadata'].get('name', '')}".rstrip()
