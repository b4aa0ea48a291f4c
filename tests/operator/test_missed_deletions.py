"""Objects that are deleted while the operator starts, or lists again, stay deleted.

The proxy holds the operator's requests during the deletion.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from distributed_input_operator.kube.kinds import BY_NAME, DEPLOYMENT, INPUT, POLICY, WATCHED
from testing.operator.cluster import Cluster
from testing.operator.policies import budget, policy_in_force, worker_replicas
from testing.operator.processes import Operator, eventually, manifest, run_operator
from testing.operator.proxy import Proxy

COUNT = 9
"""Number of children of an input."""
_QUIET_SECONDS = 5.0
"""A faulty operator would recreate children within a second, and then every few seconds."""
SERVICE = BY_NAME["Service"]


def listing(plural: str = "") -> Callable[[str], bool]:
    """Return a predicate: whether a request begins a list of a kind, or of any kind."""
    return lambda path: f"{plural}?" in path and "limit=250" in path and "continue" not in path


def watch(plural: str = "") -> Callable[[str], bool]:
    """Return a predicate: whether a request is the watch of a kind, or of any kind."""
    return lambda path: f"{plural}?" in path and "watch=true" in path


class Stage(NamedTuple):
    """Requests that the proxy holds while the input is deleted."""

    matches: Callable[[str], bool]
    answered: bool = False


STAGES = {
    "before the first list": Stage(listing(INPUT.plural)),
    "when the inputs are listed": Stage(listing(INPUT.plural), answered=True),
    "between the lists of inputs and children": Stage(listing(DEPLOYMENT.plural)),
    "between the lists and the watches": Stage(watch()),
    "before the watch of inputs begins": Stage(watch(INPUT.plural)),
}


@pytest.fixture
def names(cluster: Cluster, control_plane, tmp_path) -> Iterator[tuple[str, str]]:
    """Create two inputs with children and status. The operator that created them has exited."""
    inputs = ("gone", "kept")
    with run_operator(control_plane.kubeconfig, cluster.namespace, tmp_path):
        for name in inputs:
            cluster.create(manifest(name))
        for name in inputs:
            eventually(lambda name=name: is_complete(cluster, name))
    yield inputs
    for name in inputs:
        if cluster.get(INPUT.kind, name):
            cluster.delete(INPUT.kind, name)
    eventually(lambda: not any(map(cluster.children, inputs)))


def is_complete(cluster: Cluster, name: str) -> bool:
    """Return whether the input has all children, pods and a condition."""
    return (
        len(cluster.children(name)) == COUNT
        and bool(cluster.pods(name))
        and bool(cluster.condition(name, "Unschedulable"))
    )


def delete_and_wait(cluster: Cluster, name: str) -> None:
    """Delete an input and wait until the garbage collector has deleted its children."""
    cluster.delete(INPUT.kind, name)
    eventually(lambda: not cluster.children(name), every=0.05)


def all_kinds_are_watched(proxy: Proxy) -> bool:
    """Return whether all kinds are watched."""
    return len(set(proxy.watches)) == len((*WATCHED, POLICY))


def assert_operator_works(cluster: Cluster, name: str, count: int) -> None:
    """Check that the operator applies a change of an input."""
    cluster.patch(INPUT.kind, name, {"spec": {"workers": {"replicas": count}}})
    eventually(lambda: worker_replicas(cluster, name) == count)


def assert_forgotten(cluster: Cluster, proxy: Proxy, operator: Operator, writes: int) -> None:
    """Check that the operator has dropped the input and has not written its objects since."""

    def forgotten() -> bool:
        """Return whether the operator has no metric of the input."""
        return 'input="gone"' not in operator.get("/metrics")[1]

    eventually(lambda: all_kinds_are_watched(proxy))
    assert_operator_works(cluster, "kept", 2)
    eventually(forgotten, 20)
    time.sleep(_QUIET_SECONDS)
    assert forgotten()
    assert [one for one in proxy.writes[writes:] if "/gone" in one] == []
    assert not cluster.children("gone")
    assert operator.get("/healthz")[0] == 200


class Deletion:
    """Deletes an input once. `before`: the number of writes at its end."""

    def __init__(self, cluster: Cluster, proxy: Proxy, name: str = "gone") -> None:
        self._cluster, self._proxy, self._name = cluster, proxy, name
        self.before: list[int] = []

    def __call__(self) -> None:
        delete_and_wait(self._cluster, self._name)
        self.before.append(len(self._proxy.writes))


@pytest.mark.parametrize("stage", STAGES)
def test_an_input_that_is_deleted_during_the_start_stays_deleted(
    cluster: Cluster, proxy: Proxy, tmp_path, names, stage: str
) -> None:
    gone = Deletion(cluster, proxy)
    proxy.hold(STAGES[stage].matches, gone, answered=STAGES[stage].answered)
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path) as operator:
        eventually(lambda: gone.before)
        assert_forgotten(cluster, proxy, operator, gone.before[0])


@pytest.mark.parametrize("stage", STAGES)
def test_the_children_of_a_new_input_that_is_deleted_during_the_start_are_created_at_most_once(
    cluster: Cluster, proxy: Proxy, tmp_path, names, stage: str
) -> None:
    """No operator has seen the input before, so no child and no status shows that it existed."""
    cluster.create(manifest("fresh"))
    fresh = Deletion(cluster, proxy, "fresh")
    proxy.hold(STAGES[stage].matches, fresh, answered=STAGES[stage].answered)
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path):
        eventually(lambda: fresh.before)
        eventually(lambda: all_kinds_are_watched(proxy))
        assert_operator_works(cluster, "kept", 2)
        eventually(lambda: not cluster.children("fresh"))
        time.sleep(_QUIET_SECONDS)
        assert not cluster.children("fresh")
    written = Counter(one for one in proxy.writes[fresh.before[0] :] if "/fresh" in one)
    assert set(written.values()) <= {1}


def test_an_input_that_is_deleted_after_the_start_stays_deleted(
    cluster: Cluster, proxy: Proxy, tmp_path, names
) -> None:
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path) as operator:
        eventually(lambda: all_kinds_are_watched(proxy))
        assert_operator_works(cluster, "kept", 3)
        delete_and_wait(cluster, "gone")
        assert_forgotten(cluster, proxy, operator, len(proxy.writes))


def test_an_input_that_is_deleted_while_the_watches_list_again_stays_deleted(
    cluster: Cluster, proxy: Proxy, tmp_path, names
) -> None:
    gone = Deletion(cluster, proxy)
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path) as operator:
        eventually(lambda: all_kinds_are_watched(proxy))
        assert_operator_works(cluster, "kept", 3)
        proxy.hold(listing(), gone)
        proxy.watches.clear()
        proxy.expire()
        eventually(lambda: gone.before)
        assert_forgotten(cluster, proxy, operator, gone.before[0])


def test_children_are_not_created_again_before_their_input_is_known_to_be_deleted(
    cluster: Cluster, proxy: Proxy, tmp_path, names
) -> None:
    """Only the inputs are listed again: the watches of children report that these are deleted."""
    before: list[int] = []

    def meanwhile() -> None:
        cluster.delete(INPUT.kind, "gone")
        before.append(len(proxy.writes))
        eventually(lambda: not cluster.children("gone"), every=0.05)
        time.sleep(_QUIET_SECONDS)

    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path) as operator:
        eventually(lambda: all_kinds_are_watched(proxy))
        assert_operator_works(cluster, "gone", 3)  # now the operator has cached its token
        eventually(lambda: len(cluster.pods("gone")) == 3)
        proxy.hold(listing(INPUT.plural), meanwhile)
        proxy.expire(INPUT.plural)
        eventually(lambda: before)
        assert_forgotten(cluster, proxy, operator, before[0])


def test_children_that_are_deleted_between_the_lists_and_the_watches_are_created_again(
    cluster: Cluster, proxy: Proxy, tmp_path, names
) -> None:
    deleted_uids: dict[tuple[str, str], str] = {}

    def uid(kind: str, name: str) -> str:
        return str((cluster.get(kind, name) or {"metadata": {"uid": ""}})["metadata"]["uid"])

    def meanwhile() -> None:
        watched = {kind.kind for kind in WATCHED}  # Secrets are not watched
        for kind, name in (one for one in cluster.children("kept") if one[0] in watched):
            deleted_uids[kind, name] = uid(kind, name)
            cluster.delete(kind, name)

    proxy.hold(watch(), meanwhile)
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path):
        eventually(lambda: len(deleted_uids) == COUNT - 1)
        eventually(lambda: all(uid(*one) not in ("", old) for one, old in deleted_uids.items()))


def test_a_policy_that_is_deleted_between_the_lists_and_the_watches_is_not_in_force(
    cluster: Cluster, proxy: Proxy, tmp_path, names
) -> None:
    proxy.hold(watch(), lambda: cluster.call("DELETE", POLICY.path(None, "cluster")))
    with (
        policy_in_force(cluster, budget(cluster, 2)),
        run_operator(proxy.kubeconfig, cluster.namespace, tmp_path),
    ):
        eventually(lambda: all_kinds_are_watched(proxy))
        assert_operator_works(cluster, "kept", 4)


def test_pods_that_are_deleted_between_the_lists_and_the_watches_leave_their_budget(
    cluster: Cluster, proxy: Proxy, tmp_path, names
) -> None:
    proxy.hold(watch(), lambda: delete_and_wait(cluster, "gone"))
    with (
        policy_in_force(cluster, budget(cluster, 2)),
        run_operator(proxy.kubeconfig, cluster.namespace, tmp_path),
    ):
        assert_operator_works(cluster, "kept", 2)


def test_each_kind_is_listed_once_at_the_start_of_an_operator(
    cluster: Cluster, proxy: Proxy, tmp_path
) -> None:
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path):
        eventually(lambda: all_kinds_are_watched(proxy))
        lists = [one for one in proxy.lists if "/secrets" not in one]
        kinds = sorted(kind.plural for kind in (*WATCHED, POLICY))
        assert sorted(one.rpartition("/")[2] for one in lists) == kinds
