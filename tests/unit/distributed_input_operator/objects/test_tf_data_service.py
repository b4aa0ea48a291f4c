"""TensorFlow's own tf.data service in an input's pods: only where the resource asks for it."""

from __future__ import annotations

from typing import Any

from distributed_input.api import names
from distributed_input_operator.injection.injection import injected
from distributed_input_operator.objects.tf_data_service import stock_env
from distributed_input_operator.reconcile.status import input_status
from tests.unit.distributed_input_operator.injection.trainerpods import IMAGE, finder, pod
from tests.unit.distributed_input_operator.injection.trainerpods import resource as yaml_resource
from tests.unit.distributed_input_operator.snapshots import NOW, plan, resource, snapshot

STOCK: dict[str, Any] = {"tfDataService": {}}
ADDRESS = "grpc://digits-dispatcher:7080"


def objects(**spec: Any) -> dict[tuple[str, str], Any]:
    made = plan(snapshot(**spec), NOW)
    return {(one["kind"], one["metadata"]["name"]): one for one in made.objects}


def containers(part: str, **spec: Any) -> dict[str, Any]:
    deployment = objects(**spec)["Deployment", f"digits-{part}"]
    return {one["name"]: one for one in deployment["spec"]["template"]["spec"]["containers"]}


def test_without_the_field_there_is_nothing_of_it():
    assert list(containers("dispatcher")) == ["dispatcher"]
    assert list(containers("worker")) == ["worker"]
    assert stock_env([resource()]) == []


def test_its_containers_run_the_workers_image():
    for part, name in (("dispatcher", "tf-data-dispatcher"), ("worker", "tf-data-worker")):
        made = containers(part, **STOCK)[name]
        assert made["image"] == "worker:1"
        assert made["command"] == ["python", "-m", "distributed_input.tf_data_service"]
        assert made["args"][0] == part
        assert "readinessProbe" not in made  # it takes none of ours out of service
        own = containers(part, workers={"image": "own:2"}, **STOCK)[name]
        assert own["image"] == "own:2"


def test_the_journal_outlives_the_container():
    deployment = objects(**STOCK)["Deployment", "digits-dispatcher"]
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    made = containers("dispatcher", **STOCK)["tf-data-dispatcher"]
    (mount,) = [one for one in made["volumeMounts"] if one["name"] == "tf-data-journal"]
    assert {"name": "tf-data-journal", "emptyDir": {}} in volumes
    work_dir = made["args"][made["args"].index("--work-dir") + 1]
    assert work_dir.startswith(mount["mountPath"])
    claim = {"persistentVolumeClaim": {"claimName": "journal"}}
    kept = objects(tfDataService={"journal": claim})["Deployment", "digits-dispatcher"]
    assert {"name": "tf-data-journal", **claim} in kept["spec"]["template"]["spec"]["volumes"]


def test_workers_tell_the_pods_address_and_get_no_token():
    made = containers("worker", **STOCK)["tf-data-worker"]
    assert made["args"][made["args"].index("--advertise") + 1] == "$(POD_IP):7081"
    assert made["args"][made["args"].index("--dispatcher") + 1] == "digits-dispatcher:7080"
    (ip,) = [one for one in made["env"] if one["name"] == "POD_IP"]
    assert ip["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert names.TOKENS_DIR not in {one["mountPath"] for one in made["volumeMounts"]}


def test_static_sharding_names_the_workers_beforehand():
    made = containers("dispatcher", workers={"replicas": 3}, tfDataService={"staticSharding": True})
    args = made["tf-data-dispatcher"]["args"]
    assert args[args.index("--static-workers") + 1] == "dns:digits-worker:7081:3"


def test_service_and_network_policy_let_trainers_in():
    made = objects(**STOCK)
    ports = made["Service", "digits-dispatcher"]["spec"]["ports"]
    assert {"name": "tf-data", "port": 7080, "targetPort": "tf-data"} in ports
    rules = made["NetworkPolicy", "digits-distributed-input"]["spec"]["ingress"]
    assert {one["port"] for one in rules[0]["ports"]} == {7070, 7071, 7080, 7081}
    assert {one["port"] for one in rules[1]["ports"]} == {7070}


def test_the_status_tells_the_address():
    seen = snapshot(**STOCK)
    told = input_status(seen, plan(seen, NOW), [], NOW) or {}
    assert told["tfDataService"] == {"address": ADDRESS}
    plain = snapshot()
    assert "tfDataService" not in (input_status(plain, plan(plain, NOW), [], NOW) or {})


def test_injected_trainers_get_the_address():
    train = yaml_resource("train", "tfDataService: {}")
    made = injected(pod(inputs="train"), {}, finder(train), IMAGE)
    env = {one["name"]: one.get("value") for one in made["spec"]["containers"][0]["env"]}
    assert env[names.TF_DATA_SERVICE_ENV] == "grpc://train-dispatcher:7080"
    two = [resource("a", **STOCK), resource("b", **STOCK), resource("c")]
    (both,) = stock_env(two)
    assert both["value"] == "a=grpc://a-dispatcher:7080,b=grpc://b-dispatcher:7080"


def test_an_eighth_of_a_workers_memory_is_for_other_jobs_rows():
    for memory, expected in (({}, 64 << 20), ({"requests": {"memory": "4Gi"}}, 512 << 20)):
        args = containers("worker", workers={"resources": memory})["worker"]["args"]
        assert args[args.index("--share-bytes") + 1] == str(expected)
    args = containers("worker", workers={"resources": {"limits": {"memory": "2Gi"}}})
    found = args["worker"]["args"]
    assert found[found.index("--share-bytes") + 1] == str(256 << 20)
