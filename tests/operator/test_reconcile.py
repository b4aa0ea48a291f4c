"""The operator creates and restores the children of an input and reports problems."""

from __future__ import annotations

import time

import pytest
import yaml

from testing.operator.cluster import RequestRejected
from testing.operator.processes import eventually, manifest, template

EIGHT_LINES = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: eight}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "digits:dataset_fn", source: {type: Path, path: .}}
  workers: {replicas: 2}
"""


def children(name: str, encrypted: bool = False) -> set[tuple[str, str]]:
    shared = f"{name}-distributed-input"
    certificates = f"{shared}-tls"
    keys = {("Secret", certificates), ("ConfigMap", certificates)}
    return {
        *(keys if encrypted else {("Secret", shared)}),
        ("ConfigMap", shared),
        ("NetworkPolicy", shared),
        ("ServiceAccount", shared),
        ("Deployment", f"{name}-dispatcher"),
        ("Service", f"{name}-dispatcher"),
        ("Deployment", f"{name}-worker"),
        ("Service", f"{name}-worker"),
        ("PodDisruptionBudget", f"{name}-worker"),
    }


def test_eight_lines_yield_the_full_set_of_children(cluster, operator):
    assert len(EIGHT_LINES.splitlines()) <= 8
    cluster.create(yaml.safe_load(EIGHT_LINES))
    eventually(lambda: cluster.children("eight") == children("eight", encrypted=True))
    eventually(lambda: len(cluster.pods("eight")) == 2)
    for pod in cluster.pods("eight") + cluster.pods("eight", "dispatcher"):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    cluster.delete("DistributedInput", "eight")
    eventually(lambda: not cluster.children("eight"))


def test_the_input_is_ready_when_its_pods_are_and_reports_the_reason_until_then(cluster, name):
    cluster.create(manifest(name, workers={"replicas": 2}))
    found = eventually(lambda: cluster.condition(name, "Unschedulable"))
    assert "no nodes available to schedule pods" in found["message"]
    # The status may first say that the change is being applied.
    eventually(lambda: cluster.condition(name, "Ready")["reason"] == "Unschedulable")
    cluster.wait_until_ready(name, 2)
    assert cluster.condition(name, "DispatcherReady")["status"] == "True"
    assert not cluster.condition(name, "Unschedulable")


def test_the_tf_data_service_can_be_enabled_and_disabled(cluster, name):
    cluster.create(manifest(name, tfDataService={}))

    def address():
        return cluster.get("DistributedInput", name).get("status", {}).get("tfDataService")

    assert eventually(address)["address"] == f"grpc://{name}-dispatcher:7080"
    eventually(lambda: cluster.pods(name))
    found = {one["name"] for pod in cluster.pods(name) for one in pod["spec"]["containers"]}
    assert found == {"worker", "tf-data-worker"}
    refused = {"spec": {"tfDataService": {"port": 9090}}}
    with pytest.raises(RequestRejected, match="used in the dispatcher's pod"):
        cluster.patch("DistributedInput", name, refused)
    with pytest.raises(RequestRejected, match="set networkPolicy: Restricted, or remove"):
        cluster.patch("DistributedInput", name, {"spec": {"networkPolicy": "Open"}})
    cluster.patch("DistributedInput", name, {"spec": {"tfDataService": None}})
    eventually(lambda: not address())
    ports = cluster.get("Service", f"{name}-dispatcher")["spec"]["ports"]
    assert "tf-data" not in {one["name"] for one in ports}


def test_scale_suspend_and_resume(cluster, name):
    cluster.create(manifest(name))
    eventually(lambda: len(cluster.pods(name)) == 1)
    cluster.patch("DistributedInput", name, {"spec": {"replicas": 3}}, "scale")
    eventually(lambda: len(cluster.pods(name)) == 3)
    scale = cluster.call("GET", cluster.path("DistributedInput", name, "scale"))
    assert scale["status"]["selector"]
    cluster.patch("DistributedInput", name, {"spec": {"suspend": True}})
    eventually(lambda: not cluster.pods(name) and not cluster.pods(name, "dispatcher"))
    eventually(lambda: cluster.condition(name, "Ready").get("reason") == "Suspended")
    cluster.patch("DistributedInput", name, {"spec": {"suspend": False}})
    eventually(lambda: len(cluster.pods(name)) == 3 and cluster.pods(name, "dispatcher"))


def test_changes_by_others_are_reverted_and_their_additions_are_kept(cluster, name):
    cluster.create(manifest(name))
    eventually(lambda: cluster.children(name) == children(name))
    worker = f"{name}-worker"
    change = {"spec": {"replicas": 7, "minReadySeconds": 9}, "metadata": {"labels": {"mine": "1"}}}
    cluster.patch("Deployment", worker, change)
    cluster.delete("ConfigMap", f"{name}-distributed-input")
    cluster.delete("Service", worker)
    eventually(lambda: cluster.get("Deployment", worker)["spec"]["replicas"] == 1)
    eventually(lambda: cluster.children(name) == children(name))
    kept = cluster.get("Deployment", worker)
    assert kept["spec"]["minReadySeconds"] == 9
    assert kept["metadata"]["labels"]["mine"] == "1"


def test_fields_that_are_removed_from_the_spec_are_removed_from_the_pods(cluster, name):
    workers = template({"nodeSelector": {"disk": "fast"}}, env=[{"name": "A", "value": "1"}])
    cluster.create(manifest(name, workers=workers))

    def pod_spec():
        found = cluster.get("Deployment", f"{name}-worker")
        return found and found["spec"]["template"]["spec"]

    eventually(lambda: pod_spec() and pod_spec()["nodeSelector"].get("disk") == "fast")
    cluster.patch(
        "DistributedInput",
        name,
        {"spec": {"workers": template({"nodeSelector": None})}},
    )
    eventually(lambda: "disk" not in pod_spec()["nodeSelector"])
    assert {"name": "A", "value": "1"} in pod_spec()["containers"][0]["env"]


def test_an_image_update_creates_new_workers_before_it_deletes_old_ones(cluster, name):
    cluster.create(manifest(name))
    eventually(lambda: cluster.pods(name))
    old = cluster.pods(name)[0]["metadata"]["name"]
    cluster.wait_until_ready(name, 1)
    cluster.patch(
        "DistributedInput",
        name,
        {"spec": {"workers": template(image="mine:2")}},
    )
    eventually(lambda: len(cluster.pods(name)) == 2)
    assert old in [pod["metadata"]["name"] for pod in cluster.pods(name)]
    cluster.wait_until_ready(name, 1)
    eventually(
        lambda: [p["spec"]["containers"][0]["image"] for p in cluster.pods(name)] == ["mine:2"]
    )


def test_the_token_is_created_once(cluster, operator, name):
    cluster.create(manifest(name))
    secret = eventually(lambda: cluster.get("Secret", f"{name}-distributed-input"))
    cluster.patch("DistributedInput", name, {"spec": {"workers": {"replicas": 2}}})
    eventually(lambda: len(cluster.pods(name)) == 2)
    again = cluster.get("Secret", f"{name}-distributed-input")
    assert again["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]
    assert secret["data"]["token"] not in operator.read_log()


def test_an_object_of_another_owner_is_reported_and_unchanged(cluster, name):
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-worker"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}},
    }
    cluster.create(foreign)
    cluster.create(manifest(name))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "NameTaken"
    assert f"Service {name}-worker exists and belongs to another owner" in found["message"]
    assert cluster.get("Service", f"{name}-worker")["spec"]["selector"] == {"app": "theirs"}


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        (template({"tolerationz": []}), ".tolerationz: field not declared"),
        (template({"hostNetwork": "yes"}), ".hostNetwork: expected bool"),
    ],
)
def test_a_malformed_pod_is_reported_although_the_api_server_returns_500(
    cluster, name, workers, message
):
    name = f"{name}{len(message)}"
    cluster.create(manifest(name, workers=workers))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "Refused"
    assert message in found["message"]
    assert "change spec.workers" in found["message"]
    assert cluster.condition(name, "Ready")["reason"] == "Refused"
    cluster.delete("DistributedInput", name)


def test_a_leftover_secret_of_a_deleted_input_is_reported_until_it_is_deleted(cluster, name):
    owner_manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-alive"},
    }
    # The owner exists, so the garbage collector does not delete its dependents.
    uid = cluster.create(owner_manifest)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{name}-alive", "uid": uid}
    shared = f"{name}-distributed-input"
    meta = {"name": shared, "ownerReferences": [owner]}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    cluster.create(manifest(name))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "Leftover"
    assert f"Secret {shared} of a deleted input may still exist" in found["message"]
    assert cluster.condition(name, "Ready")["reason"] == "Leftover"
    cluster.delete("Secret", shared)
    eventually(lambda: cluster.children(name) == children(name))
    eventually(lambda: not cluster.condition(name, "Applied"))


def test_a_missing_config_map_is_reported_until_it_is_created(cluster, name):
    source = {"type": "ConfigMap", "configMap": {"name": f"{name}-code"}}
    dataset = {"type": "EntryPoint", "entryPoint": {"function": "a:b", "source": source}}
    cluster.create(manifest(name, dataset=dataset))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "CodeMissing"
    eventually(lambda: cluster.get("Deployment", f"{name}-dispatcher"))
    assert not cluster.get("Deployment", f"{name}-worker")  # Its pods could not start.
    code = {"kind": "ConfigMap", "metadata": {"name": f"{name}-code"}, "data": {"a.py": "b = 1"}}
    cluster.create(code)
    # Trigger a reconcile before the resync.
    cluster.patch("DistributedInput", name, {"spec": {"epochs": 1}})
    eventually(lambda: not cluster.condition(name, "Applied"))
    before = cluster.get("Deployment", f"{name}-worker")["spec"]["template"]
    cluster.delete("ConfigMap", f"{name}-code")
    cluster.patch("DistributedInput", name, {"spec": {"epochs": 2}})
    eventually(lambda: cluster.condition(name, "Applied"))
    assert cluster.get("Deployment", f"{name}-worker")["spec"]["template"] == before


def test_scaling_in_deletes_the_worker_that_is_not_ready_first(cluster, name):
    cluster.create(manifest(name, workers={"replicas": 3}))
    eventually(lambda: len(cluster.pods(name)) == 3)
    cluster.wait_until_ready(name, 3)
    unready = cluster.pods(name)[1]["metadata"]["name"]
    cluster.patch(
        "Pod",
        unready,
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "status",
    )
    cluster.patch("DistributedInput", name, {"spec": {"replicas": 2}}, "scale")
    eventually(lambda: len(cluster.pods(name)) == 2)
    assert unready not in [pod["metadata"]["name"] for pod in cluster.pods(name)]


def test_the_operator_writes_nothing_while_nothing_changes(cluster, operator):
    """Each input is reconciled again. `python -m testing.operator.measure` runs 50 for longer."""
    names = [f"idle{number}" for number in range(4)]
    for one in names:
        cluster.create(manifest(one))
    for one in names:
        cluster.wait_until_ready(one, 1)
    eventually(lambda: _settled(operator), 30)
    before = operator.writes()
    reconciles = operator.metric("distributed_input_operator_reconciles_total")
    for one in names:  # without this, each is reconciled every 30 s
        cluster.patch("DistributedInput", one, {"metadata": {"labels": {"touched": "yes"}}})
    eventually(
        lambda: (
            operator.metric("distributed_input_operator_reconciles_total")
            >= reconciles + len(names)
        )
    )
    assert operator.writes() == before
    for one in names:
        cluster.delete("DistributedInput", one)


def _settled(operator) -> bool:
    before = operator.writes()
    time.sleep(2)
    return operator.writes() == before


def test_sigterm_stops_the_operator_and_releases_the_lease(cluster, operator):
    """This must be the last test of this file: it stops the shared operator."""
    assert operator.get("/healthz") == (200, "ok")
    assert operator.stop() == 0
    path = "/apis/coordination.k8s.io/v1/namespaces"
    lease = cluster.call("GET", f"{path}/{cluster.namespace}/leases/distributed-input-operator")
    assert not lease["spec"].get("holderIdentity")
