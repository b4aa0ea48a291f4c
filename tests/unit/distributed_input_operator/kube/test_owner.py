"""Children of a deleted input are not created again, although the store has the input."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.reconcile_input import reconcile
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import INPUT, SECRET
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.children import digest
from distributed_input_operator.objects.kind import Kind
from tests.unit.distributed_input_operator.contexts import context_of
from tests.unit.distributed_input_operator.snapshots import (
    KEY_SECRET,
    NOW,
    plan,
    ready,
    resource,
    snapshot,
)

KEY = ("team", "digits")
OLD: Json = {"observedGeneration": 3, "conditions": [ready()]}
"""The status of an input that was reconciled before."""


def stored_input(status: Json | None = None, version: int = 7, **meta: Any) -> Json:
    planned = resource().model_dump(mode="json", by_alias=True, exclude_none=True)
    planned["metadata"] |= {"resourceVersion": str(version), **meta}
    return {**planned, "status": status or {}}


class Server:
    """An API server that has one input, or none, and maybe its Secret."""

    def __init__(self, found: Json | None, *, secret: bool = True) -> None:
        self._found = found
        self._secret = secret
        self.reads = 0
        self.created: list[str] = []
        self.uids: dict[str, str | None] = {}

    async def get(self, kind: Kind, *_: object) -> Json | None:
        if kind is SECRET:
            return KEY_SECRET
        assert kind is INPUT
        self.reads += 1
        return self._found

    async def objects(self, *_: object) -> AsyncIterator[Json]:
        """List nothing: no ReplicaSet creates pods."""
        nothing: list[Json] = []
        for one in nothing:
            yield one

    async def create(self, manifest: Json) -> Json:
        if manifest["kind"] == "Secret" and self._secret:
            raise ApiError(409, "AlreadyExists", "it exists")
        self.created.append(manifest["kind"])
        return {
            **manifest,
            "metadata": {"uid": "s", **manifest["metadata"], "resourceVersion": "9"},
        }

    async def apply(self, manifest: Json, subresource: str = "") -> Json:
        meta = manifest["metadata"]
        if not subresource:
            self.uids[manifest["kind"]] = meta.get("uid")
        if "resourceVersion" in meta and not subresource:
            self.created.append(manifest["kind"])
        return {**manifest, "metadata": {"uid": "u-1", **meta, "resourceVersion": "9"}}


def context(server: Server, *known: Json) -> ControllerContext:
    api: Any = server
    store = Store()
    for one in known:
        store.put(one)
    return context_of(api, store)


@pytest.mark.parametrize("secret", [True, False])
@pytest.mark.parametrize(
    "found",
    [None, stored_input(deletionTimestamp="2026-01-01T00:00:00Z", version=8)],
    ids=["gone", "leaving"],
)
def test_nothing_is_created_for_an_input_that_is_deleted(found, secret):
    server = Server(found, secret=secret)
    known = context(server, stored_input(OLD))
    assert asyncio.run(reconcile(known, KEY)) == 0
    assert server.created == []
    stored = known.store.input(KEY)  # It was corrected.
    assert stored is None or "deletionTimestamp" in stored["metadata"]
    assert asyncio.run(reconcile(known, KEY)), "what it was granted is kept while pods may come"
    assert (server.created, server.reads) == ([], 1)


def test_another_input_of_the_same_name_replaces_the_one_that_is_deleted():
    other = stored_input(uid="u-2", version=8)
    server = Server(other)
    known = context(server, stored_input(OLD))
    assert asyncio.run(reconcile(known, KEY)) == 0
    assert server.created == []
    assert (known.store.input(KEY) or {})["metadata"]["uid"] == "u-2"


def test_children_are_created_again_for_an_input_that_exists():
    server = Server(stored_input(OLD))
    asyncio.run(reconcile(context(server, stored_input(OLD)), KEY))
    assert len(server.created) == 8
    assert server.reads == 2  # before the Secret and before the other children


def test_an_input_is_not_read_before_its_children_are_created_for_the_first_time():
    server = Server(None, secret=False)
    asyncio.run(reconcile(context(server, stored_input()), KEY))
    assert len(server.created) == 8 + 1  # and the Secret
    assert server.reads == 0


def test_a_new_input_that_is_deleted_gets_its_children_once():
    """Otherwise they are created each time after the garbage collector has deleted them."""

    class Gone(Server):
        async def apply(self, manifest: Json, subresource: str = "") -> Json:
            if subresource == "status":
                raise ApiError(404, "NotFound", "there is no such input")
            return await super().apply(manifest, subresource)

    server = Gone(None, secret=False)
    known = context(server, stored_input())
    assert asyncio.run(reconcile(known, KEY)) == 0
    assert asyncio.run(reconcile(known, KEY)) is None
    assert (len(server.created), server.reads) == (8 + 1, 0)


def test_nothing_is_created_while_the_input_cannot_be_read():
    class Silent(Server):
        async def get(self, kind: Kind, *_: object) -> Json | None:
            if kind is INPUT:
                raise ApiError(0, "Unreachable", "no answer")
            return KEY_SECRET

    server = Silent(None)
    with pytest.raises(ApiError):
        asyncio.run(reconcile(context(server, stored_input(OLD)), KEY))
    assert server.created == []


def test_a_child_that_is_known_is_applied_with_its_uid():
    """Otherwise the API server creates it, if it was deleted meanwhile."""
    server = Server(stored_input(OLD))
    planned = plan(snapshot(), NOW)
    live = dict(next(one for one in planned.objects if one["kind"] == "NetworkPolicy"))
    live["metadata"] = {**live["metadata"], "uid": "n-1", "resourceVersion": "3"}
    live["metadata"]["annotations"] = {"distributed-input.dev/applied": digest("another")}
    asyncio.run(reconcile(context(server, stored_input(OLD), live), KEY))
    assert server.uids.pop("NetworkPolicy") == "n-1"
    assert set(server.uids.values()) == {None}
