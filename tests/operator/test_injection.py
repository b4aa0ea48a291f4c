"""Trainers' pods get their sidecar from a real API server that asks a real operator."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input_operator.injection.pod import inject, json_patch
from distributed_input_operator.injection.workloads import JOB_INDEX, JOBSET, REPLICATED_JOB
from distributed_input_operator.kube.kinds import INPUT
from distributed_input_operator.webhook.admission import OWNERS
from testing.operator.cluster import Cluster, Refused
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import (
    Webhook,
    job,
    pod,
    resolved,
    sidecar_of,
    template,
    webhook,
)

_NAMESPACES = "/api/v1/namespaces"


@pytest.fixture(scope="module")
def hook(cluster: Cluster, control_plane, tmp_path_factory) -> Iterator[Webhook]:
    """The webhook of the file's namespace, with inputs train and eval, pods restricted."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.call(
        "PATCH",
        f"{_NAMESPACES}/{cluster.namespace}",
        {"metadata": {"labels": restricted}},
        "application/merge-patch+json",
    )
    cluster.create(manifest("train", workers={"replicas": 0}))
    cluster.create(manifest("eval", workers={"replicas": 0}, sidecar={"buffer": "16Mi"}))
    folder = tmp_path_factory.mktemp("webhook")
    with webhook(cluster, control_plane.kubeconfig, folder) as made:
        yield made


def refusal(hook: Webhook, of: dict[str, Any]) -> str:
    with pytest.raises(Refused) as caught:
        hook.create(of, dryRun="All")
    return str(caught.value)


def test_a_pod_gets_one_sidecar_for_all_its_inputs(hook):
    made = hook.create(pod("train,eval"))
    sidecar = sidecar_of(made)
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == "sidecar:1"
    assert resolved(made, sidecar) == (0, 1)
    assert resolved(made, made["spec"]["containers"][0]) == (0, 1)
    mounts = [m["mountPath"] for m in made["spec"]["containers"][0]["volumeMounts"]]
    assert names.RUN_DIR in mounts
    assert "/var/run/secrets/kubernetes.io/serviceaccount" in mounts
    token = next(v["name"] for v in made["spec"]["volumes"] if v["name"].startswith("kube-api"))
    assert token not in [m["name"] for m in sidecar["volumeMounts"]]
    assert names.MOUNTS_DIR not in mounts


def test_what_the_sidecar_mounts_is_what_the_operator_makes(hook):
    made = hook.create(pod("train,eval"), dryRun="All")
    (volume,) = [v for v in made["spec"]["volumes"] if v["name"] == "distributed-input-config"]
    for source in volume["projected"]["sources"]:
        kind, ref = ("ConfigMap", "configMap") if "configMap" in source else ("Secret", "secret")
        (item,) = source[ref]["items"]
        found = eventually(lambda: hook.cluster.get(kind, source[ref]["name"]))  # noqa: B023
        assert item["key"] in found["data"]


def test_the_patched_pod_needs_no_second_patch(hook):
    made = hook.create(pod("train,eval"))  # with the API server's defaults

    def find(name: str) -> DistributedInput:
        return DistributedInput.model_validate(hook.cluster.get(INPUT.kind, name))

    assert json_patch(made, inject(made, {}, find, "sidecar:1")) == []
    again = {"apiVersion": "v1", "kind": "Pod", "spec": made["spec"]}
    again["metadata"] = {**made["metadata"], "name": "again"}
    for key in ("uid", "resourceVersion", "generateName", "managedFields", "creationTimestamp"):
        again["metadata"].pop(key, None)
    assert hook.create(again)["spec"]["initContainers"] == made["spec"]["initContainers"]


def test_a_pod_without_the_label_stays_as_it_is(hook):
    plain = pod()
    del plain["metadata"]["labels"][names.INJECT_LABEL]
    assert "initContainers" not in hook.create(plain, dryRun="All")["spec"]


def test_an_indexed_jobs_pods_know_their_index(hook):
    hook.create(job("indexed", 3))
    pods = hook.pods_of("job-name=indexed", 3)
    assert sorted(resolved(one, sidecar_of(one)) for one in pods) == [(0, 3), (1, 3), (2, 3)]


def test_a_stateful_sets_pods_know_their_ordinal(hook):
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
        made = hook.pods_of(f"app={name}", 2)
        assert sorted(resolved(one, sidecar_of(one)) for one in made) == [(0, 2), (1, 2)]


def install_jobset(cluster: Cluster) -> None:
    """JobSet's definition, as far as it is read."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha2",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    words = {"kind": "JobSet", "plural": "jobsets", "singular": "jobset", "listKind": "JobSetList"}
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
                "names": words,
                "versions": [version],
            },
        },
    )

    def served() -> bool:
        try:
            return "items" in cluster.call("GET", OWNERS["JobSet"].path(cluster.namespace))
        except Refused:
            return False

    eventually(served)


def test_a_jobsets_pods_are_counted_through(hook):
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
    hook.create(body)
    for name, replicas, each in parts:  # what JobSet's controller does
        for index in range(replicas):
            labels = {JOBSET: "fits", REPLICATED_JOB: name, JOB_INDEX: str(index)}
            hook.create(job(f"fits-{name}-{index}", each, "eval", pod_labels=labels))
    pods = hook.pods_of(f"{JOBSET}=fits", 5)
    assert sorted(resolved(one, sidecar_of(one)) for one in pods) == [(i, 5) for i in range(5)]


def test_a_pod_that_names_a_missing_input_is_refused_with_those_there_are(hook):
    told = refusal(hook, pod("train,trian"))
    assert f"no DistributedInput 'trian' in namespace {hook.cluster.namespace}" in told
    assert "(found: eval, train)" in told


def test_a_pod_of_unknown_index_is_refused_with_the_remedy(hook):
    replica = pod()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "fit-1", "uid": "u"}
    replica["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    assert names.CONSUMERS_ANNOTATION in refusal(hook, replica)


def test_tf_configs_ps_stays_as_it_is(hook):
    parameters = pod()
    config = {"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}
    env = [{"name": "TF_CONFIG", "value": json.dumps(config)}]
    parameters["spec"]["containers"][0]["env"] = env
    made = hook.create(parameters, dryRun="All")
    assert "initContainers" not in made["spec"]


def test_without_the_operator_no_trainer_starts_without_its_input(hook):
    hook.operator.process.send_signal(signal.SIGSTOP)
    try:
        assert "inject.distributed-input.dev" in refusal(hook, pod())
    finally:
        hook.operator.process.send_signal(signal.SIGCONT)
    assert sidecar_of(eventually(lambda: hook.create(pod(), dryRun="All")))


def test_a_bundle_that_someone_removed_comes_back(hook):
    before = hook.bundle()
    change = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    hook.cluster.call("PATCH", hook.path, change, "application/json-patch+json")
    eventually(lambda: hook.bundle() == before)
    hook.wait_until_asked()


def test_a_certificate_that_someone_broke_is_made_anew(hook):
    before = hook.bundle()
    broken = {key: base64.b64encode(b"broken").decode() for key in ("tls.crt", "tls.key")}
    hook.cluster.patch("Secret", names.WEBHOOK_SECRET, {"data": broken})
    eventually(lambda: hook.bundle() != before)
    hook.wait_until_asked()
    assert "PRIVATE KEY" not in hook.operator.logged()
