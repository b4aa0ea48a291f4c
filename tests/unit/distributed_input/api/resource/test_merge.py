"""Merging of the user's pod template."""

from __future__ import annotations

import copy

from hypothesis import given

from distributed_input.api.resource.merge import by_key, merge
from tests.unit.distributed_input.api.resource.json_values import (
    json_objects,
    keyed_objects,
)

templates = json_objects | keyed_objects()


def test_containers_merge_by_name_and_null_removes_a_key():
    base = {"containers": [{"name": "worker", "image": "a", "tty": True}], "x": {"y": 1}, "z": 1}
    override = {
        "containers": [{"name": "worker", "image": "b"}, {"name": "proxy"}],
        "x": {"w": [1]},
        "z": None,
    }
    assert merge(base, override) == {
        "containers": [{"name": "worker", "image": "b", "tty": True}, {"name": "proxy"}],
        "x": {"y": 1, "w": [1]},
    }


def test_another_mount_of_a_volume_keeps_the_first_one():
    base = {"volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    override = {"volumeMounts": [{"name": "tmp", "mountPath": "/scratch", "subPath": "a"}]}
    assert merge(base, override) == {
        "volumeMounts": [*base["volumeMounts"], *override["volumeMounts"]]
    }
    assert merge(base, {"volumeMounts": [{"name": "fast", "mountPath": "/tmp"}]}) == {
        "volumeMounts": [{"name": "fast", "mountPath": "/tmp"}]
    }


def test_another_port_of_a_name_replaces_the_first_one():
    base = {
        "ports": [{"name": "data", "containerPort": 1}, {"name": "metrics", "containerPort": 2}]
    }
    override = {
        "ports": [{"name": "data", "containerPort": 3}, {"containerPort": 2, "hostPort": 4}]
    }
    merged = merge(
        {"containers": [{"name": "w", **base}]}, {"containers": [{"name": "w", **override}]}
    )
    assert merged["containers"][0]["ports"] == [
        {"name": "metrics", "containerPort": 2, "hostPort": 4},
        {"name": "data", "containerPort": 3},
    ]


def test_a_repeated_variable_merges_by_its_place():
    base = {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}
    override = {"env": [{"name": "A", "value": "3"}]}
    assert merge(base, override)["env"] == [base["env"][0] | {"value": "3"}, base["env"][1]]


def test_a_list_without_keys_is_replaced():
    tolerations = {"tolerations": [{"key": "a", "operator": "Exists"}]}
    assert merge({"tolerations": [{"key": "b", "effect": "NoSchedule"}]}, tolerations) == (
        tolerations
    )
    assert merge({"args": ["a", "b"]}, {"args": ["c"]}) == {"args": ["c"]}


@given(templates, templates)
def test_merging_twice_equals_merging_once(base, override):
    once = merge(base, override)
    assert merge(once, override) == once


@given(templates, templates)
def test_an_empty_override_changes_nothing_and_the_arguments_stay(base, override):
    kept = copy.deepcopy((base, override))
    assert merge(base, {}) == base
    merge(base, override)
    assert (base, override) == kept


def test_elements_have_the_keys_of_their_list():
    mounts = [{"name": "data", "mountPath": "/a"}, {"name": "data", "mountPath": "/b"}]
    assert by_key(mounts, "volumeMounts") == {("/a", 0): mounts[0], ("/b", 0): mounts[1]}
    ports = [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]
    assert by_key(ports, "ports", "containers") == {
        (53, "TCP", 0): ports[0],
        (53, "UDP", 0): ports[1],
    }


def test_elements_with_the_same_keys_differ_in_their_occurrence():
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    assert by_key(env, "env") == {("A", 0): env[0], ("A", 1): env[1]}


def test_other_lists_have_no_keys():
    assert by_key([{"key": "a"}], "tolerations") is None
    assert by_key([{"port": 53}], "ports", "ingress") is None
    assert by_key([{"value": "without name"}], "env") is None
    assert by_key(None, "env") is None
