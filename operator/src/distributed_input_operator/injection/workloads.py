"""Which trainer a pod is by what runs it: Job, JobSet, StatefulSet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names
from distributed_input_operator.injection.trainers import (
    REMEDY,
    Consumer,
    Manifest,
    RefusedError,
    annotations_of,
    controller,
    labels_of,
    literal,
    of_metadata,
    wanted_inputs,
)

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"


@dataclass(frozen=True)
class Owner:
    """What runs a pod."""

    kind: str
    """Job, JobSet or StatefulSet"""
    name: str


def owners_of(pod: Manifest) -> list[Owner]:
    """What must be looked at to know which trainer the pod is."""
    owner = controller(pod)
    if owner is None or owner["kind"] not in ("Job", "StatefulSet"):
        return []
    jobset = labels_of(pod).get(JOBSET)
    own = Owner(owner["kind"], owner["name"])
    return [own, Owner("JobSet", jobset)] if jobset and own.kind == "Job" else [own]


def by_job(pod: Manifest, owners: Mapping[str, Manifest], count: int | None) -> Consumer | None:
    """By a Job, alone or of a JobSet; None without one. `count`: as stated. Raises RefusedError."""
    job = owners.get("Job")
    if job is None:
        return None
    spec, who = job["spec"], _called("Job", job)
    parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
    jobset = owners.get("JobSet")
    if spec.get("completionMode") != "Indexed":
        if parallelism == 1 and completions in (None, 1) and jobset is None:
            return Consumer(literal(0), 1, who)
        raise RefusedError(f"{who} gives its pods no index: set its completionMode: Indexed")
    completions = int(completions or parallelism)
    if parallelism < completions and count is None:
        raise RefusedError(
            f"{who} runs {parallelism} of its {completions} pods at a time, and trainers that "
            f"share an input run together: set its parallelism: {completions}, or, where each "
            f'reads all of it alone, annotation {names.CONSUMERS_ANNOTATION}: "1"'
        )
    if jobset is not None:
        return _by_jobset(pod, jobset)
    return Consumer(of_metadata("annotations", COMPLETION_INDEX), completions, who)


def by_stateful_set(pod: Manifest, owners: Mapping[str, Manifest]) -> Consumer | None:
    """By a StatefulSet; None without one. Raises RefusedError."""
    stateful = owners.get("StatefulSet")
    if stateful is None:
        return None
    spec, who = stateful["spec"], _called("StatefulSet", stateful)
    if above := controller(stateful):
        raise RefusedError(
            f"{who} belongs to {above['kind']} {above['name']}, which may have others: {REMEDY}"
        )
    count, start = int(spec.get("replicas", 1)), int((spec.get("ordinals") or {}).get("start", 0))
    if start == 0:
        return Consumer(of_metadata("labels", POD_INDEX), count, who)
    ordinal = labels_of(pod).get(POD_INDEX) or pod["metadata"].get("name", "").rpartition("-")[2]
    if not ordinal.isdecimal():
        raise RefusedError(f"{who}: a template whose ordinals start at {start} is for the webhook")
    return Consumer(literal(int(ordinal) - start), count, who)


def _by_jobset(pod: Manifest, jobset: Manifest) -> Consumer:
    """Pods are counted through the replicated jobs that ask for the same inputs, in their order."""
    who, wanted = _called("JobSet", jobset), set(wanted_inputs(pod))
    here = labels_of(pod).get(REPLICATED_JOB)
    before, count = None, 0
    for one in jobset["spec"]["replicatedJobs"]:
        template = one["template"]["spec"]["template"]
        pods = {"metadata": template.get("metadata") or {}}
        if labels_of(pods).get(names.INJECT_LABEL) != "true":
            continue
        others = set(wanted_inputs(pods))
        if one["name"] == here:
            before, size = count, _size(one)
        if others == wanted:
            count += _size(one) * int(one.get("replicas", 1))
        elif others & wanted:
            raise RefusedError(
                f"{who}: replicated job {one['name']} shares {', '.join(sorted(others & wanted))} "
                "with others and not all inputs: give them the same, or inputs of their own"
            )
    index = [labels_of(pod).get(JOB_INDEX), annotations_of(pod).get(COMPLETION_INDEX)]
    if before is None or not all(one and one.isdecimal() for one in index):
        raise RefusedError(
            f"{who}: the pod is in none of its replicated jobs with label {names.INJECT_LABEL}: "
            "set label and annotations in the JobSet's pod templates"
        )
    return Consumer(literal(before + int(index[0] or 0) * size + int(index[1] or 0)), count, who)


def _size(replicated: Mapping[str, Any]) -> int:
    spec = replicated["template"]["spec"]
    return int(spec.get("completions") or spec.get("parallelism") or 1)


def _called(kind: str, manifest: Manifest) -> str:
    return f"{kind} {manifest['metadata'].get('name', '')}".rstrip()
