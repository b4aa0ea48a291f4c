"""An input becomes objects, and stays what it should be, whatever others do."""

from __future__ import annotations

import time

import pytest
import yaml

from testing.operator.cluster import Refused
from testing.operator.processes import eventually, manifest

EIGHT_LINES = """\
apiVersion: distributed-input.dev/v1alpha1
kind: DistributedInput
metadata: {name: eight}
spec:
  dataset: {entryPoint: "digits:dataset_fn", source: {path: .}}
  workers: {replicas: 2}
"""


def children(name: str) -> set[tuple[str, str]]:
    shared = f"{name}-distributed-input"
    return {
        ("ConfigMap", shared),
        ("NetworkPolicy", shared),
        ("Secret", shared),
        ("ServiceAccount", shared),
        ("Deployment", f"{name}-dispatcher"),
        ("Service", f"{name}-dispatcher"),
        ("Deployment", f"{name}-worker"),
        ("Service", f"{name}-worker"),
        ("PodDisruptionBudget", f"{name}-worker"),
    }


@pytest.fixture
def name(cluster, operator, request):
    """An input's name, and the end of that input."""
    made = f"i{abs(hash(request.node.nodeid)) % 10**8}"
    yield made
    if cluster.get("DistributedInput", made):
        cluster.delete("DistributedInput", made)


def test_eight_lines_yield_the_full_set_of_children(cluster, operator):
    assert len(EIGHT_LINES.splitlines()) <= 8
    cluster.create(yaml.safe_load(EIGHT_LINES))
    eventually(lambda: cluster.children("eight") == children("eight"))
    eventually(lambda: len(cluster.pods("eight")) == 2)
    for pod in cluster.pods("eight") + cluster.pods("eight", "dispatcher"):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    cluster.delete("DistributedInput", "eight")
    eventually(lambda: not cluster.children("eight"))


def test_the_input_is_ready_when_its_parts_serve_and_says_what_is_missing_until_then(cluster, name):
    cluster.create(manifest(name, workers={"replicas": 2}))
    found = eventually(lambda: cluster.condition(name, "Unschedulable"))
    assert "no nodes available to schedule pods" in found["message"]
    assert cluster.condition(name, "Ready")["reason"] == "Unschedulable"
    cluster.all_serve(name, 2)
    assert cluster.condition(name, "DispatcherReady")["status"] == "True"
    assert not cluster.condition(name, "Unschedulable")


def test_the_stock_tf_data_service_comes_and_goes(cluster, name):
    cluster.create(manifest(name, tfDataService={}))

    def address():
        return cluster.get("DistributedInput", name).get("status", {}).get("tfDataService")

    assert eventually(address)["address"] == f"grpc://{name}-dispatcher:7080"
    eventually(lambda: cluster.pods(name))
    found = {one["name"] for pod in cluster.pods(name) for one in pod["spec"]["containers"]}
    assert found == {"worker", "tf-data-worker"}
    refused = {"spec": {"tfDataService": {"port": 9090}}}
    with pytest.raises(Refused, match="taken in the dispatcher's pod"):
        cluster.patch("DistributedInput", name, refused)
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


def test_what_others_change_is_set_back_and_what_they_add_stays(cluster, name):
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


def test_what_the_spec_takes_back_goes(cluster, name):
    workers = {"nodeSelector": {"disk": "fast"}, "env": [{"name": "A", "value": "1"}]}
    cluster.create(manifest(name, workers=workers))

    def pod_spec():
        found = cluster.get("Deployment", f"{name}-worker")
        return found and found["spec"]["template"]["spec"]

    eventually(lambda: pod_spec() and pod_spec().get("nodeSelector") == {"disk": "fast"})
    cluster.patch("DistributedInput", name, {"spec": {"workers": {"nodeSelector": None}}})
    eventually(lambda: "nodeSelector" not in pod_spec())
    assert {"name": "A", "value": "1"} in pod_spec()["containers"][0]["env"]


def test_another_image_rolls_workers_new_ones_first(cluster, name):
    cluster.create(manifest(name))
    eventually(lambda: cluster.pods(name))
    old = cluster.pods(name)[0]["metadata"]["name"]
    cluster.all_serve(name, 1)
    cluster.patch("DistributedInput", name, {"spec": {"workers": {"image": "mine:2"}}})
    eventually(lambda: len(cluster.pods(name)) == 2)
    assert old in [pod["metadata"]["name"] for pod in cluster.pods(name)]
    cluster.all_serve(name, 1)
    eventually(
        lambda: [p["spec"]["containers"][0]["image"] for p in cluster.pods(name)] == ["mine:2"]
    )


def test_the_token_is_made_once(cluster, operator, name):
    cluster.create(manifest(name))
    secret = eventually(lambda: cluster.get("Secret", f"{name}-distributed-input"))
    cluster.patch("DistributedInput", name, {"spec": {"workers": {"replicas": 2}}})
    eventually(lambda: len(cluster.pods(name)) == 2)
    again = cluster.get("Secret", f"{name}-distributed-input")
    assert again["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]
    assert secret["data"]["token"] not in operator.logged()


def test_a_name_that_is_taken_is_told_and_not_taken_over(cluster, name):
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{name}-worker"},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}},
    }
    cluster.create(theirs)
    cluster.create(manifest(name))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "NameTaken"
    assert f"Service {name}-worker exists and belongs to another owner" in found["message"]
    assert cluster.get("Service", f"{name}-worker")["spec"]["selector"] == {"app": "theirs"}


def test_a_pod_template_that_kubernetes_refuses_is_told_in_its_words(cluster, name):
    template = {"spec": {"containers": [{"name": "worker", "ports": [{"containerPort": -1}]}]}}
    cluster.create(manifest(name, workers={"podTemplate": template}))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "Refused"
    assert "containerPort" in found["message"]
    assert "change spec.workers" in found["message"]


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ({"podTemplate": {"spec": {"tolerationz": []}}}, ".tolerationz: field not declared"),
        ({"podTemplate": {"spec": {"hostNetwork": "yes"}}}, ".hostNetwork: expected bool"),
        ({"env": [{"name": "HOME", "value": "/data"}]}, "duplicate"),
    ],
)
def test_what_is_no_pod_at_all_is_told_though_the_server_answers_500(cluster, name, workers, words):
    name = f"{name}{len(words)}"
    cluster.create(manifest(name, workers=workers))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "Refused"
    assert words in found["message"]
    assert "change spec.workers" in found["message"]
    assert cluster.condition(name, "Ready")["reason"] == "Refused"
    cluster.delete("DistributedInput", name)


def test_a_secret_of_a_deleted_input_that_stays_is_told_until_it_goes(cluster, name):
    alive = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-alive"}}
    uid = cluster.create(alive)["metadata"]["uid"]  # no garbage collector comes
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"{name}-alive", "uid": uid}
    shared = f"{name}-distributed-input"
    meta = {"name": shared, "ownerReferences": [owner]}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta})
    cluster.create(manifest(name))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "Leftover"
    assert f"Secret {shared} of a deleted input still exists" in found["message"]
    assert cluster.condition(name, "Ready")["reason"] == "Leftover"
    cluster.delete("Secret", shared)
    eventually(lambda: cluster.children(name) == children(name))
    eventually(lambda: not cluster.condition(name, "Applied"))


def test_a_quota_is_told_in_the_quotas_words(cluster, name):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight"},
        "spec": {"hard": {"requests.cpu": "1"}},
    }
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    cluster.call("POST", path, quota)
    try:
        workers = {"replicas": 1, "resources": {"requests": {"cpu": 64}}}
        cluster.create(manifest(name, workers=workers))
        found = eventually(lambda: cluster.condition(name, "QuotaExceeded"))
        assert "exceeded quota: tight" in found["message"]
        assert cluster.condition(name, "Ready")["reason"] == "QuotaExceeded"
    finally:
        cluster.call("DELETE", f"{path}/tight")


def test_a_crash_loop_is_told_with_its_last_log_line(cluster, name):
    cluster.create(manifest(name))
    eventually(lambda: cluster.pods(name))
    ended = {"exitCode": 1, "message": "Traceback\nModuleNotFoundError: No module named 'digits'\n"}
    container = {
        "name": "worker",
        "image": "worker:1",
        "imageID": "",
        "ready": False,
        "restartCount": 4,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": ended},
    }
    pod = cluster.pods(name)[0]["metadata"]["name"]
    cluster.patch("Pod", pod, {"status": {"containerStatuses": [container]}}, "status")
    found = eventually(lambda: cluster.condition(name, "PodsFailing"))
    assert found["message"].endswith(
        "container worker ended 4 times, last with exit status 1: "
        "ModuleNotFoundError: No module named 'digits'"
    )


def test_a_missing_config_map_is_told_and_found_when_it_comes(cluster, name):
    dataset = {"entryPoint": "a:b", "source": {"configMap": f"{name}-code"}}
    cluster.create(manifest(name, dataset=dataset))
    found = eventually(lambda: cluster.condition(name, "Applied"))
    assert found["reason"] == "CodeMissing"
    template = cluster.get("Deployment", f"{name}-worker")["spec"]["template"]
    code = {"kind": "ConfigMap", "metadata": {"name": f"{name}-code"}, "data": {"a.py": "b = 1"}}
    cluster.create(code)
    cluster.patch("DistributedInput", name, {"spec": {"epochs": 1}})  # or 30 s later
    eventually(lambda: not cluster.condition(name, "Applied"))
    assert cluster.get("Deployment", f"{name}-worker")["spec"]["template"] != template


def test_a_spec_that_only_python_can_judge_is_told_and_harms_nothing(cluster, name):
    cluster.create(manifest(name, dataset={"entryPoint": "a:b", "args": {"not a word": 1}}))
    found = eventually(lambda: cluster.condition(name, "Ready"))
    assert found["reason"] == "InvalidSpec"
    assert "spec.dataset.args.not a word" in found["message"]


def test_scale_in_takes_the_worker_that_is_not_ready_first(cluster, name):
    cluster.create(manifest(name, workers={"replicas": 3}))
    eventually(lambda: len(cluster.pods(name)) == 3)
    cluster.all_serve(name, 3)
    lazy = cluster.pods(name)[1]["metadata"]["name"]
    cluster.patch(
        "Pod",
        lazy,
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "status",
    )
    cluster.patch("DistributedInput", name, {"spec": {"replicas": 2}}, "scale")
    eventually(lambda: len(cluster.pods(name)) == 2)
    assert lazy not in [pod["metadata"]["name"] for pod in cluster.pods(name)]


def test_nothing_is_written_while_nothing_changes(cluster, operator):
    """Ten inputs for ten seconds. `python -m testing.operator.measure` runs 50 for longer."""
    names = [f"idle{number}" for number in range(10)]
    for one in names:
        cluster.create(manifest(one))
    for one in names:
        cluster.all_serve(one, 1)
    eventually(lambda: _settled(operator), 30)
    before = operator.writes()
    looks = operator.metric("distributed_input_operator_reconciles_total")
    for one in names:  # by themselves they are looked at every 30 s
        cluster.patch("DistributedInput", one, {"metadata": {"labels": {"touched": "yes"}}})
    time.sleep(10)
    assert operator.metric("distributed_input_operator_reconciles_total") >= looks + len(names)
    assert operator.writes() == before
    for one in names:
        cluster.delete("DistributedInput", one)


def _settled(operator) -> bool:
    before = operator.writes()
    time.sleep(2)
    return operator.writes() == before


def test_sigterm_ends_it_cleanly_and_frees_the_lease(cluster, operator):
    """The last test of this file."""
    assert operator.get("/healthz") == (200, "ok")
    assert operator.stop() == 0
    path = "/apis/coordination.k8s.io/v1/namespaces"
    lease = cluster.call("GET", f"{path}/{cluster.namespace}/leases/distributed-input-operator")
    assert not lease["spec"].get("holderIdentity")
