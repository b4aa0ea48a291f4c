"""JobSet's controller creates trainers, and our webhook numbers them and adds the sidecar."""

from __future__ import annotations

from typing import Any

from testing.ecosystem.controllers import create
from testing.operator.processes import manifest
from testing.operator.webhooks import Webhook, consumer_identity, find_sidecar, template


def jobset_manifest(name: str, replicas: int, pods: int) -> dict[str, Any]:
    job = {"completions": pods, "parallelism": pods, "template": template()}
    jobs = [{"name": "trainer", "replicas": replicas, "template": {"spec": job}}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": jobs},
    }


def test_every_trainer_of_a_jobset_gets_a_sidecar_and_its_number(hook: Webhook, jobset):
    hook.cluster.create(manifest("train", workers={"replicas": 0}))
    namespace = hook.cluster.namespace
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
    create(hook.cluster, path, jobset_manifest("digits", 2, 3))
    pods = hook.wait_for_pods("jobset.sigs.k8s.io/jobset-name=digits", 6)
    found = sorted(consumer_identity(one, find_sidecar(one)) for one in pods)
    assert found == [(index, 6) for index in range(6)]
