"""v1beta1 on a real API server, with the operator and the webhook."""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.resource.conversion.convert import KEPT
from testing.cluster.binaries import binary
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually
from testing.operator.versions import DEFINITION_PATH, beta_path, serve_beta
from testing.operator.webhooks import Webhook

Json = dict[str, Any]
ALPHA, BETA = "distributed-input.dev/v1alpha1", "distributed-input.dev/v1beta1"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def webhook(
    cluster: Cluster, control_plane: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Webhook]:
    folder = tmp_path_factory.mktemp("versions")
    with serve_beta(cluster, control_plane.kubeconfig, folder) as created:
        yield created


def beta(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": BETA,
        "kind": "DistributedInput",
        "metadata": {"name": name},
        "spec": spec,
    }


def alpha(name: str, **spec: Any) -> Json:
    return {**beta(name, **spec), "apiVersion": ALPHA}


def notes(found: Json) -> Json:
    return {
        key: value
        for key, value in found["metadata"].get("annotations", {}).items()
        if key in KEPT.values()
    }


def replicas(cluster: Cluster, name: str) -> int | None:
    found: Any = cluster.get("Deployment", f"{name}-worker") or {"spec": {}}
    number: int | None = found["spec"].get("replicas")
    return number


def run_kubectl(control_plane: Any, *words: str) -> str:
    command = [str(binary("kubectl")), f"--kubeconfig={control_plane.kubeconfig}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


FULL: Json = {
    "dataset": {
        "type": "EntryPoint",
        "entryPoint": {"function": "digits:dataset_fn", "source": {"type": "Image"}},
    },
    "networkPolicy": "Open",
    "trainers": {"weight": "500m"},
    "workers": {
        "accelerator": {"resourceName": "amd.com/gpu", "nodeSelector": {"pool": "amd"}},
        "template": {
            "metadata": {"labels": {"team": "vision"}},
            "spec": {
                "hostAliases": [{"ip": "10.1.1.1", "hostnames": ["store"]}],
                "containers": [
                    {"name": "worker", "image": "digits:1", "resources": {"limits": {"cpu": 2}}}
                ],
            },
        },
    },
}


def test_what_is_created_in_one_version_is_read_in_the_other(
    cluster: Cluster, webhook: Webhook
) -> None:
    created = cluster.call("POST", beta_path(cluster), beta("full", **FULL))
    read = cluster.call("GET", beta_path(cluster, "full"))
    assert read["spec"] == created["spec"]
    assert read["spec"]["workers"]["accelerator"] == {
        **FULL["workers"]["accelerator"],
        "count": 1,
    }
    assert read["spec"]["trainers"]["weight"] == "500m"
    assert read["metadata"].get("annotations") is None
    stored = cluster.get("DistributedInput", "full") or {}
    assert stored["apiVersion"] == ALPHA
    assert stored["spec"]["networkPolicy"] is False
    assert stored["spec"]["workers"]["image"] == "digits:1"
    assert set(notes(stored)) == {KEPT[BETA]}

    old = alpha(
        "old", dataset={"fromTrainer": True}, workers={"accelerator": {"type": "gke-nvidia"}}
    )
    cluster.create(old)
    found = cluster.call("GET", beta_path(cluster, "old"))
    assert found["spec"]["dataset"] == {"type": "Trainer"}
    assert set(notes(found)) == {KEPT[ALPHA]}
    before = cluster.get("DistributedInput", "old") or {}
    cluster.call("PATCH", beta_path(cluster, "old"), {"spec": {"suspend": True}}, MERGE)
    after = cluster.get("DistributedInput", "old") or {}
    assert after["spec"] == {**before["spec"], "suspend": True}
    assert notes(after) == {}


def test_an_input_of_v1beta1_runs(
    cluster: Cluster, webhook: Webhook, control_plane: Any, tmp_path: Any
) -> None:
    file = tmp_path / "input.yaml"
    file.write_text(
        """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: digits}
spec:
  dataset: {type: EntryPoint, entryPoint: {function: "digits:dataset_fn"}}
  workers:
    replicas: 2
    template: {spec: {containers: [{name: worker, image: "registry/digits:1"}]}}
"""
    )

    def kubectl(*words: str) -> str:
        return run_kubectl(control_plane, *words, "--namespace", cluster.namespace)

    kubectl("apply", "-f", str(file))
    worker: Any = eventually(lambda: cluster.get("Deployment", "digits-worker"))
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry/digits:1"
    assert worker["spec"]["replicas"] == 2
    file.write_text(file.read_text().replace("replicas: 2", "replicas: 3"))
    kubectl("apply", "-f", str(file))
    eventually(lambda: replicas(cluster, "digits") == 3)
    kubectl("scale", "dinput", "digits", "--replicas", "1")
    eventually(lambda: replicas(cluster, "digits") == 1)
    eventually(lambda: "digits" in kubectl("get", "dinput", "digits"))
    status = cluster.call("GET", beta_path(cluster, "digits"))["status"]
    assert {one["type"] for one in status["conditions"]} >= {"Ready"}


REFUSED = [
    ({"order": "any"}, "spec.order"),
    ({"dataset": {"type": "EntryPoint"}}, "spec.dataset: .*type EntryPoint needs entryPoint"),
    ({"dataset": {"entryPoint": {"function": "a:b"}}}, "spec.dataset.type: Required"),
    ({"trainers": {"weight": "2k"}}, "spec.trainers.weight"),
    ({"trainers": {"weight": 0}}, "spec.trainers.weight"),
    ({"partitions": 5, "batching": {"globalBatchSize": 12}}, "spec: .*set `order: Any`"),
    ({"tfDataService": {}, "encryption": "All"}, "spec: .*encryption: None"),
    ({"tfDataService": {}}, "spec.tfDataService: has no authentication .*set encryption: None"),
    (
        {"tfDataService": {}, "encryption": "None", "networkPolicy": "Open"},
        "spec.tfDataService: .*set networkPolicy: Restricted",
    ),
    (
        {"workers": {"accelerator": {"resourceName": "gpu"}}},
        "spec.workers.accelerator.resourceName",
    ),
    (
        {"workers": {"template": {"spec": {"containers": [{"image": "x"}]}}}},
        r"spec.workers.template.spec.containers\[0\].name: Required",
    ),
    (
        {
            "dataset": {
                "type": "EntryPoint",
                "entryPoint": {"function": "a:b", "source": {"type": "Path"}},
            }
        },
        "spec.dataset.entryPoint.source: .*type Path needs path",
    ),
    ({"managedBy": "canary"}, "spec.managedBy"),
]


@pytest.mark.parametrize(("spec", "message"), REFUSED, ids=[row[1] for row in REFUSED])
def test_an_invalid_input_is_refused_with_fields_of_v1beta1(
    cluster: Cluster, webhook: Webhook, spec: Json, message: str
) -> None:
    with pytest.raises(RequestRejected, match=message) as caught:
        cluster.call("POST", beta_path(cluster), beta("wrong", **spec), dryRun="All")
    assert caught.value.status == 422


IMMUTABLE = [
    ("order", {"seed": 1}, {"seed": 2}, "seed is immutable"),
    ("encryption", {"encryption": "All"}, {"encryption": "None"}, "encryption is immutable"),
    ("undecided", {}, {"encryption": "None"}, "encryption is immutable"),
    (
        "managed",
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        {"managedBy": "distributed-input.dev/canary"},
        "managedBy is immutable",
    ),
]


@pytest.mark.parametrize(("name", "spec", "change", "message"), IMMUTABLE)
def test_immutable_fields_do_not_change(
    cluster: Cluster, webhook: Webhook, name: str, spec: Json, change: Json, message: str
) -> None:
    cluster.call("POST", beta_path(cluster), beta(name, **spec))
    with pytest.raises(RequestRejected, match=message):
        cluster.call("PATCH", beta_path(cluster, name), {"spec": change}, MERGE)
    # Nor through the annotation of the conversion.
    row = {"path": ["spec", "seed"], "value": 7}
    note = {"metadata": {"annotations": {KEPT[ALPHA]: json.dumps([row])}}}
    before = (cluster.get("DistributedInput", name) or {})["spec"]
    cluster.call("PATCH", beta_path(cluster, name), note, MERGE)
    assert (cluster.get("DistributedInput", name) or {})["spec"] == before


def test_field_managers_of_both_versions_share_an_input(cluster: Cluster, webhook: Webhook) -> None:
    def apply(manager: str, body: Json) -> Json:
        path = (beta_path if body["apiVersion"] == BETA else alpha_path)(cluster, "shared")
        return cluster.call("PATCH", path, body, APPLY, fieldManager=manager)

    def alpha_path(_: Cluster, name: str) -> str:
        return cluster.path("DistributedInput", name)

    apply("one", beta("shared", networkPolicy="Open", workers={"replicas": 2}))
    apply("two", alpha("shared", epochs=3, trainers={"weight": 0.5}))
    found = cluster.call("GET", beta_path(cluster, "shared"))
    assert found["spec"]["networkPolicy"] == "Open"
    assert found["spec"]["epochs"] == 3
    assert found["spec"]["trainers"]["weight"] == "0.5"
    with pytest.raises(RequestRejected, match="conflict"):
        apply("two", alpha("shared", epochs=3, networkPolicy=True))
    apply("one", beta("shared", workers={"replicas": 2}))
    found = cluster.get("DistributedInput", "shared") or {}
    assert found["spec"]["networkPolicy"] is True  # the default, because no manager sets it
    assert found["spec"]["epochs"] == 3


def test_without_the_webhook_v1alpha1_and_the_operator_continue(
    cluster: Cluster, webhook: Webhook
) -> None:
    cluster.create(alpha("alone", workers={"replicas": 1}))
    webhook.server.stop()
    with pytest.raises(RequestRejected, match=r"conversion webhook .* failed"):
        cluster.call("GET", beta_path(cluster, "alone"))
    cluster.patch("DistributedInput", "alone", {"spec": {"workers": {"replicas": 2}}})
    eventually(lambda: replicas(cluster, "alone") == 2)
    webhook.server.restart()
    eventually(lambda: webhook.server.get("/readyz")[0] == 200)
    assert cluster.call("GET", beta_path(cluster, "alone"))["spec"]["workers"]["replicas"] == 2


def test_a_removed_bundle_is_restored(cluster: Cluster, webhook: Webhook) -> None:
    def client_config() -> Json:
        found = cluster.call("GET", DEFINITION_PATH)["spec"]["conversion"]["webhook"]
        config: Json = found["clientConfig"]
        return config

    before = client_config()
    assert base64.b64decode(before["caBundle"]).startswith(b"-----BEGIN CERTIFICATE")
    assert len(before["url"].rpartition("/convert/")[2]) == 32
    cluster.call(
        "PATCH",
        DEFINITION_PATH,
        {"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": None}}}}},
        MERGE,
    )
    eventually(lambda: client_config() == before)


def test_the_documented_commands_repair_a_definition_without_a_webhook(
    cluster: Cluster, webhook: Webhook, control_plane: Any
) -> None:
    """They come last: then no version but v1alpha1 is served."""
    page = (Path(__file__).parents[3] / "docs" / "api-versions.md").read_text()
    block = page.partition("To repair this:")[2].split("```")[1].partition("\n")[2]
    for command in block.replace("\\\n", " ").strip().splitlines():
        program, *words = shlex.split(command)
        assert program == "kubectl"
        run_kubectl(control_plane, *words)
    for path in (DEFINITION_PATH, DEFINITION_PATH.replace("distributedinputs", "inputpolicies")):
        spec = cluster.call("GET", path)["spec"]
        assert [one["name"] for one in spec["versions"] if one["served"]] == ["v1alpha1"]
        assert spec["conversion"] == {"strategy": "None"}
    place = ("--namespace", cluster.namespace)
    eventually(lambda: "v1beta1" not in run_kubectl(control_plane, "api-resources"))
    assert "alone" in run_kubectl(control_plane, "get", "dinput", *place)
