"""The store: newer versions win, and deleted objects stay deleted."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.kube.store import Store


def child(version: int, uid: str = "u", **fields: object) -> dict:
    labels = {"distributed-input.dev/input": "digits"}
    meta: dict[str, object] = {
        "name": "digits-worker",
        "namespace": "team",
        "uid": uid,
        "labels": labels,
    }
    meta |= {"resourceVersion": str(version), "managedFields": [{}]}
    return {"kind": "Deployment", "metadata": meta, **fields}


KEY = ("team", "digits")
PLACE = ("Deployment", "digits-worker")


@given(st.permutations(range(1, 7)))
def test_the_newest_version_wins_in_any_order(versions):
    store = Store()
    for version in versions:
        is_newest = version > max([0, *(one["spec"] for one in store.children(KEY).values())])
        assert store.put(child(version, spec=version)) == (KEY if is_newest else None)
    assert store.put(child(6)) is None
    assert store.children(KEY)[PLACE]["spec"] == 6
    assert "managedFields" not in store.children(KEY)[PLACE]["metadata"]


def test_a_late_deletion_of_an_earlier_object_keeps_the_new_one():
    store = Store()
    store.put(child(5, uid="new"))
    assert store.drop(child(4, uid="old")) is None
    assert store.children(KEY)
    assert store.drop(child(6, uid="new")) == KEY
    assert not store.children(KEY)


def relabelled(obj: dict, input_name: str) -> dict:
    return {
        **obj,
        "metadata": {**obj["metadata"], "labels": {"distributed-input.dev/input": input_name}},
    }


def test_a_child_with_another_label_stays_with_its_owner():
    """The difference of its label is then repaired."""
    store = Store()
    owned = child(1)
    owned["metadata"]["ownerReferences"] = [{"kind": "DistributedInput", "name": "digits"}]
    store.put(owned)
    changed = relabelled(owned, "other")
    changed["metadata"]["resourceVersion"] = "2"
    assert store.put(changed) == KEY
    assert store.known() == [KEY]
    labels = store.children(KEY)[PLACE]["metadata"]["labels"]
    assert labels == {"distributed-input.dev/input": "other"}
    assert store.drop(changed) == KEY
    assert store.known() == []


@pytest.mark.parametrize("kind", ["Pod", "ConfigMap"])
@given(events=st.permutations([(1, "digits"), (2, "other"), (3, "digits"), (4, "other")]))
def test_an_object_with_another_label_belongs_to_one_input_only(kind, events):
    """A ReplicaSet releases such a pod, which must not count for both."""
    store = Store()
    for version, name in events:
        store.put(relabelled({**child(version), "kind": kind, "spec": {}}, name))
    assert store.known() == [("team", "other")]
    last = relabelled({**child(5), "kind": kind}, "digits")
    assert store.drop(last) == ("team", "other")
    assert store.known() == []


def test_an_object_whose_label_names_no_input_leaves_its_input():
    store = Store()
    store.put(child(2))
    assert store.put(relabelled(child(1), "")) is None
    assert store.known() == [KEY], "an earlier version"
    assert store.put(relabelled(child(3), "")) == KEY
    assert store.put(relabelled(child(4), "")) is None
    assert store.known() == []


def test_an_object_of_no_input_is_ignored():
    store = Store()
    other = child(1)
    other["metadata"]["labels"] = {}
    assert store.put(other) is None


def test_only_the_used_fields_of_a_pod_are_kept():
    store = Store()
    states = {"initContainerStatuses": [{"name": "fetch"}], "containerStatuses": [{"name": "w"}]}
    status = {"phase": "Running", "podIP": "10.0.0.1", **states}
    requests = {"requests": {"cpu": "1"}}
    whole = {"resources": {"requests": {"cpu": "64"}}, "overhead": {"cpu": "250m"}}
    spec = {"containers": [{"name": "worker", "image": "w:1", "resources": requests}], "x": 1}
    pod = {"kind": "Pod", "spec": {**whole, **spec}, "status": {**status, "hostIP": "10.9.9.9"}}
    store.put({**child(1), **pod})
    (found,) = store.children(KEY).values()
    assert found["spec"] == {**whole, "containers": [{"resources": requests}]}
    assert found["status"] == status


def test_a_list_drops_what_it_lacks_except_newer_objects():
    store = Store()
    for name, version in (("listed", 1), ("gone", 2), ("new", 9)):
        one = child(version, uid=f"u-{name}")
        store.put({**one, "metadata": {**one["metadata"], "name": name}})
    store.put({**child(2, uid="u-service"), "kind": "Service"})
    assert store.replace("Deployment", "team", {"u-listed"}, 5) == [KEY]
    assert sorted(name for _, name in store.children(KEY)) == ["digits-worker", "listed", "new"]
    assert store.replace("Deployment", "another", set(), 20) == []
    assert store.replace("Deployment", None, set(), 20) == [KEY, KEY]
    assert [kind for kind, _ in store.children(KEY)] == ["Service"]


@pytest.mark.parametrize("namespace", [None, "team"])
def test_a_response_that_comes_after_the_deletion_creates_nothing(namespace):
    """The operator would believe that the object exists, and never create it again."""
    store = Store()
    store.put(child(1))
    store.drop(child(4))
    store.advance("Deployment", namespace, 4)
    assert store.put(child(3)) is None
    assert not store.known()
    store.advance("Deployment", namespace, 2)
    assert store.put(child(4)) is None
    assert store.put({**child(3), "kind": "Service"}) == KEY
    assert store.put(child(5)) == KEY, "somebody has put the label back"


def test_an_input_is_known_while_any_of_its_children_remains():
    store = Store()
    store.put(child(1))
    assert store.input(KEY) is None
    assert store.known() == [KEY]


def test_an_input_of_another_class_is_foreign():
    store, canary = Store(), Store("canary")
    plain = {"kind": "DistributedInput", "metadata": child(1)["metadata"] | {"name": KEY[1]}}
    plain["metadata"]["labels"] = {}
    classed = {**plain, "spec": {"managedBy": "distributed-input.dev/canary"}}
    for one, own, other in ((store, plain, classed), (canary, classed, plain)):
        one.put(other)
        assert one.is_foreign(KEY)
        one.drop(other)
        assert not one.is_foreign(KEY)
        one.put(own)
        assert not one.is_foreign(KEY)


def test_objects_like_the_first_of_their_kind_take_little_memory():
    store = Store()
    spec = {f"field{number}": f"value {number**3}" for number in range(100)}
    for number in range(20):
        one = child(1, uid=f"u{number}", spec={**spec, "replicas": number})
        one["metadata"]["name"] = f"digits-{number}"
        store.put(one)
    kept = [one.content for one in store._objects[KEY].values()]
    alone = len(zlib.compress(json.dumps(spec).encode()))
    assert max(map(len, kept)) < alone / 2
    replicas = [one["spec"]["replicas"] for one in store.children(KEY).values()]
    assert replicas == list(range(20))
