"""What a watch did not report as deleted is dropped from the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller.resync import Resync
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import BY_NAME, INPUT, POLICY, Kind
from distributed_input_operator.kube.store import Json, Store


def obj(kind: str, name: str, namespace: str = "team") -> Json:
    meta = {"name": name, "uid": f"{kind}-{name}-{namespace}", "resourceVersion": "5"}
    meta |= {"namespace": namespace} if namespace else {}
    labels = {"distributed-input.dev/input": "digits"}
    return {"kind": kind, "metadata": {**meta, "labels": labels}}


class Server:
    """An API server that has `objects`, and calls `meanwhile` while it lists."""

    def __init__(self, *objects: Json, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._objects = objects
        self._meanwhile = meanwhile
        self.refused = ""

    async def objects(self, kind: Kind, namespace: str, *, name: str) -> AsyncIterator[Json]:
        for one in self._objects:
            if one["kind"] == kind.kind and one["metadata"]["name"] == name:
                if name == self.refused:
                    raise ApiError(403, "Forbidden", f"{name} may not be read")
                yield one

    async def metadata(self, kind: Kind, namespace: str | None) -> AsyncIterator[Json]:
        self._meanwhile()
        for one in self._objects:
            if one["kind"] == kind.kind and namespace in (None, one["metadata"]["namespace"]):
                yield one["metadata"]


def dropped(
    store: Store, server: Server, kind: Kind = INPUT, namespace: str | None = None
) -> list[InputKey]:
    """Return the inputs that are reconciled because `drop_missing` dropped an object."""
    api: Any = server
    found: list[InputKey] = []
    resync = Resync(api, store, [kind], [namespace], found.append)
    asyncio.run(resync.drop_missing(kind, namespace))
    return found


def stored(*objects: Json) -> Store:
    store = Store()
    for one in objects:
        store.put(one)
    return store


def test_an_object_of_each_kind_is_dropped_if_the_list_does_not_contain_it():
    for kind in ("DistributedInput", "Deployment", "Service", "Pod"):
        kept, gone = obj(kind, "digits"), obj(kind, "photos")
        store = stored(kept, gone)
        assert len(dropped(store, Server(kept), BY_NAME[kind])) == 1
        assert list(store.of_kind(kind)) == [kept["metadata"]["uid"]]


def test_the_policy_is_dropped_if_the_list_does_not_contain_it():
    store = stored(obj(POLICY.kind, "cluster", ""))
    assert dropped(store, Server(), POLICY) == [("", "cluster")]
    assert store.policy() is None


def test_objects_of_other_kinds_and_namespaces_are_kept():
    kept = [obj("Deployment", "digits"), obj(INPUT.kind, "digits", "another")]
    store = stored(obj(INPUT.kind, "digits"), *kept)
    assert dropped(store, Server(), namespace="team") == [("team", "digits")]
    assert store.of_kind("Deployment")
    assert store.input(("another", "digits"))


def test_an_object_is_kept_if_it_was_created_while_the_list_was_made():
    store = Store()
    new = obj(INPUT.kind, "digits")
    assert dropped(store, Server(meanwhile=lambda: store.put(new))) == []
    assert store.input(("team", "digits"))


def test_an_object_is_reported_once_if_the_watch_reports_its_deletion_as_well():
    gone = obj(INPUT.kind, "digits")
    store = stored(gone)
    assert dropped(store, Server(meanwhile=lambda: store.drop(gone))) == []


def test_a_new_object_of_the_same_name_is_kept():
    old, new = obj(INPUT.kind, "digits"), obj(INPUT.kind, "digits")
    new["metadata"] |= {"uid": "new", "resourceVersion": "6"}
    store = stored(old)
    dropped(store, Server(meanwhile=lambda: store.put(new)))
    assert list(store.of_kind(INPUT.kind)) == ["new"]


def dead(store: Store, event: Json | None = None) -> tuple[str, ...]:
    """Return the dead watches if this event arrives in the grace period."""
    api: Any = Server(newer("digits"))
    resync = Resync(api, store, [BY_NAME["Deployment"]], [None], lambda _: None)

    async def check() -> None:
        checking = asyncio.create_task(resync.check(grace=0.01))
        await asyncio.sleep(0)
        if event:
            asyncio.get_running_loop().call_soon(resync.record_event, event)
        await checking

    asyncio.run(check())
    assert store.of_kind("Deployment")[newer("digits")["metadata"]["uid"]], "it is repaired"
    return resync.dead


def newer(name: str, kind: str = "Deployment") -> Json:
    one = obj(kind, name)
    return {**one, "metadata": {**one["metadata"], "resourceVersion": "9"}}


def test_a_watch_without_any_event_is_dead():
    assert dead(stored(obj("Deployment", "digits"))) == ("Deployment",)


def test_a_slow_watch_that_still_reports_other_objects_is_not_dead():
    late = obj("Deployment", "photos")
    assert dead(stored(obj("Deployment", "digits")), late) == ()
    assert dead(stored(obj("Deployment", "digits")), obj("Pod", "p")) == ("Deployment",)


def test_a_write_of_the_operator_itself_needs_no_event():
    assert dead(stored(newer("digits"))) == ()


def checked(store: Store, server: Server, kind: str) -> tuple[tuple[str, ...], list[InputKey]]:
    """Return the dead watches, and the inputs that are reconciled, if no event arrives."""
    api: Any = server
    found: list[InputKey] = []
    resync = Resync(api, store, [BY_NAME[kind]], [None], found.append)
    asyncio.run(resync.check(grace=0.0))
    return resync.dead, found


def of_no_input(kind: str) -> Json:
    """Return an object with the watched label, whose value names no input."""
    one = newer("digits", kind)
    one["metadata"]["labels"] = {"distributed-input.dev/input": ""}
    return one


@pytest.mark.parametrize("kind", ["ConfigMap", "Pod"])
def test_an_object_whose_label_names_no_input_is_not_missed(kind):
    """Any user can create one, and the operator must not restart."""
    assert checked(Store(), Server(of_no_input(kind)), kind) == ((), [])


@pytest.mark.parametrize("kind", ["ConfigMap", "Pod"])
def test_an_object_whose_label_no_longer_names_an_input_is_dropped(kind):
    store = stored(obj(kind, "digits"))
    server = Server(of_no_input(kind))
    assert checked(store, server, kind) == ((kind,), [("team", "digits")]), "no event arrived"
    assert not store.known()
    store = stored(obj(kind, "digits"))
    assert dropped(store, server, BY_NAME[kind]) == [("team", "digits")]


def test_an_object_that_cannot_be_read_hides_no_dead_watch():
    store = stored(obj("Deployment", "photos"), obj("Deployment", "digits"))
    server = Server(newer("photos"), newer("digits"))
    server.refused = "photos"
    assert checked(store, server, "Deployment") == (("Deployment",), [("team", "digits")])
