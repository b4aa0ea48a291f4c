"""The webhook of a real operator injects sidecars into trainer pods."""

from __future__ import annotations

import base64
import json
import signal
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from distributed_input.api import files, names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.injection.owners import JOB_SET
from distributed_input_operator.injection.pod import inject, json_patch
from distributed_input_operator.injection.pod_sets import JOB_INDEX, REPLICATED_JOB
from distributed_input_operator.kube.kinds import INPUT
from distributed_input_operator.objects.snapshot import Settings
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import (
    Webhook,
    consumer_identity,
    find_sidecar,
    job,
    pod,
    run_webhook,
    template,
)

_NAMESPACES = "/api/v1/namespaces"


@pytest.fixture(scope="module")
def hook(cluster: Cluster, control_plane, tmp_path_factory) -> Iterator[Webhook]:
    """Run the webhook in a restricted namespace with the inputs train and eval."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.call(
        "PATCH",
        f"{_NAMESPACES}/{cluster.namespace}",
        {"metadata": {"labels": restricted}},
        "application/merge-patch+json",
    )
    cluster.create(manifest("train", workers={"replicas": 0}))
    cluster.create(manifest("eval", workers={"replicas": 0}, sidecar={"buffer": "16Mi"}))
    local = {"cpus": 2, "memory": "1Gi"}
    cluster.create(manifest("local", workers={"replicas": 0, "local": local}))
    folder = tmp_path_factory.mktemp("webhook")
    with run_webhook(cluster, control_plane.kubeconfig, folder) as created:
        yield created


def rejection_message(hook: Webhook, body: dict[str, Any]) -> str:
    with pytest.raises(RequestRejected) as caught:
        hook.create(body, dryRun="All")
    return str(caught.value)


def test_a_pod_gets_one_sidecar_for_all_its_inputs(hook):
    created = hook.create(pod("train,eval"))
    sidecar = find_sidecar(created)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == "sidecar:1"
    assert consumer_identity(created, sidecar) == (0, 1)
    assert consumer_identity(created, created["spec"]["containers"][0]) == (0, 1)
    mounts = [m["mountPath"] for m in created["spec"]["containers"][0]["volumeMounts"]]
    assert files.RUN_DIR in mounts
    assert "/var/run/secrets/kubernetes.io/serviceaccount" in mounts
    token = next(v["name"] for v in created["spec"]["volumes"] if v["name"].startswith("kube-api"))
    assert token not in [m["name"] for m in sidecar["volumeMounts"]]
    assert files.MOUNTS_DIR not in mounts


def test_the_sidecar_mounts_objects_that_the_operator_creates(hook):
    created = hook.create(pod("train,eval"), dryRun="All")
    (volume,) = [v for v in created["spec"]["volumes"] if v["name"] == "distributed-input-config"]
    for source in volume["projected"]["sources"]:
        kind, ref = ("ConfigMap", "configMap") if "configMap" in source else ("Secret", "secret")
        (item,) = source[ref]["items"]
        found = eventually(lambda: hook.cluster.get(kind, source[ref]["name"]))  # noqa: B023
        assert item["key"] in found["data"]


def test_the_patched_pod_needs_no_second_patch(hook):
    created = hook.create(pod("train,eval"))  # includes the API server's defaults

    def find(name: str) -> DistributedInput:
        return DistributedInput.model_validate(hook.cluster.get(INPUT.kind, name))

    assert json_patch(created, inject(created, [], find, Settings("worker:1", "sidecar:1"))) == []
    again = {"apiVersion": "v1", "kind": "Pod", "spec": created["spec"]}
    again["metadata"] = {**created["metadata"], "name": "again"}
    for key in ("uid", "resourceVersion", "generateName", "managedFields", "creationTimestamp"):
        again["metadata"].pop(key, None)
    assert hook.create(again)["spec"]["initContainers"] == created["spec"]["initContainers"]


def test_a_pod_gets_a_worker_of_its_own(hook):
    created = hook.create(pod("eval,local"))
    worker, sidecar = created["spec"]["initContainers"]
    assert (worker["name"], worker["restartPolicy"]) == ("di-worker-local", "Always")
    assert worker["image"] == "worker:1"
    assert worker["resources"] == {
        "requests": {"cpu": "10m", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "1Gi"},
    }
    ids = [
        one["valueFrom"]["fieldRef"]["fieldPath"]
        for container in (worker, sidecar)
        for one in container["env"]
        if one["name"] == "DISTRIBUTED_INPUT_POD_UID"
    ]
    assert ids == ["metadata.uid", "metadata.uid"]
    for container in (worker, sidecar):
        assert "$(DISTRIBUTED_INPUT_POD_UID)" in container["args"]
    ports = [one["ports"][0]["containerPort"] for one in (sidecar, worker)]
    assert ports == [9090, 9091]
    (secret,) = [volume["secret"] for volume in created["spec"]["volumes"] if "secret" in volume]
    found = eventually(lambda: hook.cluster.get("Secret", secret["secretName"]))
    assert files.TOKEN_KEY in found["data"]

    def find(name: str) -> DistributedInput:
        return DistributedInput.model_validate(hook.cluster.get(INPUT.kind, name))

    assert json_patch(created, inject(created, [], find, Settings("worker:1", "sidecar:1"))) == []


def test_pods_of_an_indexed_job_use_the_completion_index(hook):
    hook.create(job("indexed", 3))
    pods = hook.wait_for_pods("job-name=indexed", 3)
    assert sorted(consumer_identity(one, find_sidecar(one)) for one in pods) == [
        (0, 3),
        (1, 3),
        (2, 3),
    ]


def test_pods_of_a_stateful_set_use_the_ordinal(hook):
    for name, start in (("from-five", 5), ("from-zero", 0)):
        pods = template(restartPolicy="Always")
        pods["metadata"]["labels"]["app"] = name
        spec = {
            "replicas": 2,
            "ordinals": {"start": start},
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": pods,
        }
        head = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
        hook.create({**head, "metadata": {"name": name}, "spec": spec})
        created = hook.wait_for_pods(f"app={name}", 2)
        assert sorted(consumer_identity(one, find_sidecar(one)) for one in created) == [
            (0, 2),
            (1, 2),
        ]


def install_jobset(cluster: Cluster) -> None:
    """Install a minimal CRD of JobSet."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha2",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    crd_names = {
        "kind": "JobSet",
        "plural": "jobsets",
        "singular": "jobset",
        "listKind": "JobSetList",
    }
    cluster.call(
        "POST",
        crds,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": "jobsets.jobset.x-k8s.io",
                "annotations": {"api-approved.kubernetes.io": "unapproved, tests only"},
            },
            "spec": {
                "group": "jobset.x-k8s.io",
                "scope": "Namespaced",
                "names": crd_names,
                "versions": [version],
            },
        },
    )

    def served() -> bool:
        try:
            return "items" in cluster.call("GET", JOB_SET.path(cluster.namespace))
        except RequestRejected:
            return False

    eventually(served)


def test_pods_of_a_jobset_are_numbered_across_its_jobs(hook):
    install_jobset(hook.cluster)
    parts = [("leader", 1, 1), ("workers", 2, 2)]
    replicated = [
        {
            "name": name,
            "replicas": replicas,
            "template": {"spec": {"completions": each, "template": template("eval")}},
        }
        for name, replicas, each in parts
    ]
    head = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    body = {**head, "metadata": {"name": "fits"}, "spec": {"replicatedJobs": replicated}}
    uid = hook.create(body)["metadata"]["uid"]
    owner = {**head, "name": "fits", "uid": uid, "controller": True}
    for name, replicas, each in parts:  # like JobSet's controller
        for index in range(replicas):
            labels = {"jobset": "fits", REPLICATED_JOB: name, JOB_INDEX: str(index)}
            made = job(f"fits-{name}-{index}", each, "eval", pod_labels=labels)
            made["metadata"]["ownerReferences"] = [owner]
            hook.create(made)
    pods = hook.wait_for_pods("jobset=fits", 5)
    assert sorted(consumer_identity(one, find_sidecar(one)) for one in pods) == [
        (i, 5) for i in range(5)
    ]


def test_only_the_api_server_gets_answers(hook):
    """Any pod can connect. The answer would have the spec of inputs in any namespace."""
    (webhook,) = hook.cluster.call("GET", hook.configuration_path)["webhooks"]
    path = urlsplit(webhook["clientConfig"]["url"]).path
    trust = ssl.create_default_context(cadata=hook.bundle().decode())
    review = {"uid": "1", "namespace": hook.cluster.namespace, "object": pod("train")}

    def status(path: str) -> int:
        client = HTTPSConnection("localhost", hook.port, context=trust, timeout=20)
        try:
            client.request("POST", path, json.dumps({"request": review}))
            return client.getresponse().status
        finally:
            client.close()

    assert status(path) == 200
    for wrong in (names.WEBHOOK_PATH, f"{names.WEBHOOK_PATH}/", f"{names.WEBHOOK_PATH}/{32 * '0'}"):
        assert status(wrong) == 404
    for process in (hook.operator, hook.server):
        assert path not in process.read_log()


def test_while_no_operator_runs_trainer_pods_get_their_sidecar(hook):
    hook.operator.process.send_signal(signal.SIGSTOP)
    try:
        assert find_sidecar(hook.create(pod(), dryRun="All"))
        hook.server.restart()
        eventually(lambda: hook.server.get("/readyz")[0] == 200)
        assert find_sidecar(hook.create(pod(), dryRun="All"))
    finally:
        hook.operator.process.send_signal(signal.SIGCONT)


def test_while_the_webhook_is_stopped_trainer_pods_are_rejected(hook):
    hook.server.process.send_signal(signal.SIGSTOP)
    try:
        assert "inject.distributed-input.dev" in rejection_message(hook, pod())
    finally:
        hook.server.process.send_signal(signal.SIGCONT)
    assert find_sidecar(eventually(lambda: hook.create(pod(), dryRun="All")))


def test_a_removed_ca_bundle_is_restored(hook):
    before = hook.bundle()
    change = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    hook.cluster.call("PATCH", hook.configuration_path, change, "application/json-patch+json")
    eventually(lambda: hook.bundle() == before)
    hook.wait_until_called()


def test_an_invalid_certificate_is_replaced(hook):
    before = hook.bundle()
    broken = {key: base64.b64encode(b"broken").decode() for key in ("tls.crt", "tls.key")}
    hook.cluster.patch("Secret", names.WEBHOOK_SECRET, {"data": broken})
    eventually(lambda: hook.bundle() != before)
    hook.wait_until_called()
    assert "PRIVATE KEY" not in hook.operator.read_log() + hook.server.read_log()
