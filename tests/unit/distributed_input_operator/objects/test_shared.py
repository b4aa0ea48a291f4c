"""The objects that all parts of an input share."""

from __future__ import annotations

import json

from distributed_input.api import files
from distributed_input_operator.objects.shared import token_secret
from tests.unit.distributed_input_operator.objects.builders import objects
from tests.unit.distributed_input_operator.snapshots import resource

NAME = "digits-distributed-input"


def test_the_config_map_has_the_configuration_of_the_data_plane():
    config = json.loads(objects(seed=7)["ConfigMap", NAME]["data"][files.CONFIG_KEY])
    assert config["inputs"]["digits"]["seed"] == 7


def test_a_folder_of_the_users_machine_does_not_reach_the_cluster():
    entry = {"function": "a:b", "source": {"type": "Path", "path": "/home/user/code"}}
    dataset = {"type": "EntryPoint", "entryPoint": entry}
    config = json.loads(objects(dataset=dataset)["ConfigMap", NAME]["data"][files.CONFIG_KEY])
    assert config["inputs"]["digits"]["dataset"]["source"] == {"image": True}


def test_the_network_policy_allows_trainers_the_operator_and_metrics():
    trainers, operator, metrics = objects()["NetworkPolicy", NAME]["spec"]["ingress"]
    labels = [one["podSelector"]["matchLabels"] for one in trainers["from"]]
    assert {"distributed-input.dev/reads-digits": "true"} in labels
    assert [one["port"] for one in trainers["ports"]] == [7070, 7071, 7072]
    assert [one["port"] for one in operator["ports"]] == [7070]
    assert [one["port"] for one in metrics["ports"]] == [9090]


def test_without_network_policy_every_pod_can_connect():
    everyone, *_ = objects(networkPolicy="Open")["NetworkPolicy", NAME]["spec"]["ingress"]
    assert "from" not in everyone


def test_the_token_is_in_a_secret_with_the_shared_name():
    secret = token_secret(resource(), "t0ken")
    assert secret["metadata"]["name"] == NAME
    assert secret["stringData"] == {files.TOKEN_KEY: "t0ken"}
