"""TensorFlow's own tf.data service in the pods of an input."""

from __future__ import annotations

from typing import Any

from distributed_input.api import environment, files
from distributed_input_operator.objects.tf_data_service import (
    tf_data_service_address,
    tf_data_service_env,
)
from tests.unit.distributed_input_operator.objects.builders import (
    containers,
    flag,
    objects,
    pod_spec,
)
from tests.unit.distributed_input_operator.snapshots import resource

ENABLED: dict[str, Any] = {"tfDataService": {}}


def test_without_the_field_there_are_no_further_containers():
    assert list(containers("dispatcher")) == ["dispatcher"]
    assert list(containers("worker")) == ["worker"]
    assert tf_data_service_env([resource()]) == []
    assert tf_data_service_address(resource()) == ""


def test_its_containers_run_the_workers_image():
    for part, name in (("dispatcher", "tf-data-dispatcher"), ("worker", "tf-data-worker")):
        made = containers(part, **ENABLED)[name]
        assert made["image"] == "worker:1"
        assert made["command"] == ["python", "-m", "distributed_input.tf_data_service"]
        assert made["args"][0] == part
        assert "readinessProbe" not in made  # its errors must not make our pods unavailable
        own = containers(part, workers={"image": "own:2"}, **ENABLED)[name]
        assert own["image"] == "own:2"


def test_the_journal_survives_a_restart_of_the_container():
    volumes = pod_spec("dispatcher", **ENABLED)["volumes"]
    made = containers("dispatcher", **ENABLED)["tf-data-dispatcher"]
    (mount,) = [one for one in made["volumeMounts"] if one["name"] == "tf-data-journal"]
    assert {"name": "tf-data-journal", "emptyDir": {}} in volumes
    assert flag(made["args"], "--work-dir").startswith(mount["mountPath"])
    claim = {"persistentVolumeClaim": {"claimName": "journal"}}
    volumes = pod_spec("dispatcher", tfDataService={"journal": claim})["volumes"]
    assert {"name": "tf-data-journal", **claim} in volumes


def test_workers_advertise_the_pods_address_and_get_no_token():
    made = containers("worker", **ENABLED)["tf-data-worker"]
    assert flag(made["args"], "--advertise") == "$(POD_IP):7081"
    assert flag(made["args"], "--dispatcher") == "digits-dispatcher:7080"
    (ip,) = [one for one in made["env"] if one["name"] == "POD_IP"]
    assert ip["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert files.TOKENS_DIR not in {one["mountPath"] for one in made["volumeMounts"]}


def test_incomplete_items_are_left_to_the_api_server():
    nameless: list[dict[str, Any]] = [{"value": "1"}]
    made = containers(
        "worker", workers={"env": nameless, "volumeMounts": [{"name": "v"}]}, **ENABLED
    )
    assert {"name": "v"} in made["tf-data-worker"]["volumeMounts"]


def test_static_sharding_gives_the_dispatcher_the_list_of_workers():
    made = containers("dispatcher", workers={"replicas": 3}, tfDataService={"staticSharding": True})
    args = made["tf-data-dispatcher"]["args"]
    assert flag(args, "--static-workers") == "dns:digits-worker:7081:3"


def test_service_and_network_policy_allow_trainers_to_connect():
    made = objects(**ENABLED)
    ports = made["Service", "digits-dispatcher"]["spec"]["ports"]
    assert {"name": "tf-data", "port": 7080, "targetPort": "tf-data"} in ports
    rules = made["NetworkPolicy", "digits-distributed-input"]["spec"]["ingress"]
    assert {one["port"] for one in rules[0]["ports"]} == {7070, 7071, 7072, 7080, 7081}
    assert {one["port"] for one in rules[1]["ports"]} == {7070}


def test_the_variable_of_a_trainer_has_names_only_if_several_inputs_have_the_service():
    a, b, c = resource("a", **ENABLED), resource("b", **ENABLED), resource("c")
    (one,) = tf_data_service_env([a, c])
    assert one == {"name": environment.TF_DATA_SERVICE_ENV, "value": "grpc://a-dispatcher:7080"}
    (both,) = tf_data_service_env([a, b, c])
    assert both["value"] == "a=grpc://a-dispatcher:7080,b=grpc://b-dispatcher:7080"
