"""Builders of trainer pods and their owners, as JSON."""

from __future__ import annotations

import json
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.parse import parse
from distributed_input_operator.injection.owners import COMPLETION_INDEX
from distributed_input_operator.injection.pod_sets import JOB_INDEX, REPLICATED_JOB
from distributed_input_operator.injection.trainer_pod import RefusedError
from distributed_input_operator.objects.snapshot import Settings
from tests.unit.distributed_input.api.resource.manifests import manifest

IMAGE = "registry/sidecar:1"
SETTINGS = Settings("registry/worker:1", IMAGE)
API_VERSIONS = {
    "CronJob": "batch/v1",
    "Job": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}
"""Of the kinds that own trainer pods. Others have the same kinds in other groups."""


def resource(name: str = "train", spec: str = "") -> DistributedInput:
    """Return an input with this text under `spec:`. Default: without encryption."""
    if "encryption:" not in spec:
        spec = f"encryption: None\n{spec}"
    return parse(manifest(spec, name))


def finder(*inputs: DistributedInput) -> Any:
    """Return a function that finds these inputs by name, as `inject` needs it."""
    known = {one.metadata.name: one for one in inputs}

    def find(name: str) -> DistributedInput:
        if name not in known:
            raise RefusedError(f"no DistributedInput {name!r}")
        return known[name]

    return find


def template(inputs: str = "train", **spec: Any) -> dict[str, Any]:
    """Return a pod template that requests inputs."""
    return {
        "metadata": {
            "labels": {names.INJECT_LABEL: "true"},
            "annotations": {names.INPUTS_ANNOTATION: inputs},
        },
        "spec": {"containers": [{"name": "trainer", "image": "registry/trainer:1"}], **spec},
    }


def reference(kind: str, name: str, api_version: str = "") -> dict[str, Any]:
    """Return the reference to a controller."""
    return {
        "apiVersion": api_version or API_VERSIONS.get(kind, "example.com/v1"),
        "kind": kind,
        "name": name,
        "uid": f"uid of {name}",
        "controller": True,
    }


def owner(
    kind: str,
    name: str,
    spec: dict[str, Any],
    *above: str,
    api_version: str = "",
) -> dict[str, Any]:
    """Return an object that owns trainer pods. `above` is kind and name of its controller."""
    own = reference(kind, name, api_version)
    meta: dict[str, Any] = {"name": name, "uid": own["uid"]}
    if above:
        meta["ownerReferences"] = [reference(*above)]
    return {"apiVersion": own["apiVersion"], "kind": kind, "metadata": meta, "spec": spec}


def pod(
    inputs: str = "train",
    *,
    env: dict[str, str] | None = None,
    owner: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a trainer pod. `owner` is kind, name and apiVersion of its controller."""
    made = template(inputs, **spec)
    made["metadata"]["name"] = "trainer"
    made["metadata"]["annotations"].update(annotations or {})
    made["metadata"]["labels"].update(labels or {})
    if owner:
        made["metadata"]["ownerReferences"] = [reference(*owner)]
    if env:
        made["spec"]["containers"][0]["env"] = [{"name": k, "value": v} for k, v in env.items()]
    return made


def tf_config(kind: str, index: Any = 0, **cluster: Any) -> dict[str, str]:
    """Return an environment with TF_CONFIG."""
    lists = {name: ["host:1"] * n if isinstance(n, int) else n for name, n in cluster.items()}
    return {"TF_CONFIG": json.dumps({"cluster": lists, "task": {"type": kind, "index": index}})}


def job(
    completions: int | None = 4,
    parallelism: int | None = None,
    indexed: bool = True,
    above: tuple[str, ...] = (),
) -> Any:
    """Return a Job. `above` is kind and name of its controller."""
    spec: dict[str, Any] = {"completionMode": "Indexed" if indexed else "NonIndexed"}
    spec["parallelism"] = completions if parallelism is None else parallelism
    if completions is not None:
        spec["completions"] = completions
    return owner("Job", "fit", spec, *above)


def replicated(name: str, replicas: int, completions: int, inputs: str | None = "train") -> Any:
    """Return a replicated job of a JobSet."""
    pods = template(inputs) if inputs is not None else {"metadata": {}, "spec": {}}
    spec = {"completions": completions, "parallelism": completions, "template": pods}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def jobset(*replicated_jobs: Any, above: tuple[str, ...] = ()) -> Any:
    """Return a JobSet. `above` is kind and name of its controller."""
    return owner("JobSet", "fits", {"replicatedJobs": list(replicated_jobs)}, *above)


def jobset_job(completions: int | None = 2, indexed: bool = True) -> Any:
    """Return a Job of a JobSet."""
    return job(completions, indexed=indexed, above=("JobSet", "fits"))


def jobset_pod(replicated_job: str, job_index: int, index: int, inputs: str = "train") -> Any:
    """Return a pod of a Job of a JobSet."""
    return pod(
        inputs,
        owner=("Job", "fit"),
        labels={
            REPLICATED_JOB: replicated_job,
            JOB_INDEX: str(job_index),
        },
        annotations={COMPLETION_INDEX: str(index)},
    )
