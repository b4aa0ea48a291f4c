"""The elements of lists by their keys."""

from __future__ import annotations

from distributed_input.api.resource.merge import by_key


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
