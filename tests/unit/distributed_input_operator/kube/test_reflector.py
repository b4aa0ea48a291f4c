"""The store has exactly what the API server has, whatever happens to lists and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.kube import reflector
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import DEPLOYMENT
from distributed_input_operator.kube.reflector import Mirror, reflect
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.kind import Kind

LABEL = "distributed-input.dev/input"
_GONE = ApiError(410, "Expired", "too old resource version")


class World:
    """An API server with the objects of one kind. A script decides what happens at each response.

    Attributes:
        store: the store of the operator, which also gets the responses to its own writes.
        lists: number of begun lists.
        idle: set when the script has ended and the watch has reported all changes.
    """

    def __init__(self, script: list[str]) -> None:
        self.script = script
        self.store = Store()
        self.lists = 0
        self.idle = asyncio.Event()
        self._objects: dict[str, Json] = {}
        self._log: list[tuple[int, Json]] = []
        self._responses: list[Json] = []
        self._version = 0
        self._compacted = 0
        for name in ("a", "b", "c", "d", "e"):
            self._write(name)

    @property
    def selected(self) -> dict[str, str]:
        """The version of each object with the watched label, by name."""
        return {
            name: one["metadata"]["resourceVersion"]
            for name, one in self._objects.items()
            if LABEL in one["metadata"]["labels"]
        }

    async def pages(self, *_: Any) -> AsyncIterator[Json]:
        """List two objects in each page."""
        self.lists += 1
        items, version = [self._objects[name] for name in self.selected], self._version
        while True:
            self._step()
            if version < self._compacted:
                raise _GONE
            page, items = items[:2], items[2:]
            meta = {"resourceVersion": str(version), "continue": "more" if items else ""}
            yield {"metadata": meta, "items": page}
            if not items:
                return

    async def watch(
        self, _: Kind, namespace: Any, since: str, seconds: int, silent: float
    ) -> AsyncIterator[Json]:
        seen = int(since)
        while True:
            ended = self._step()
            if seen < self._compacted:
                raise _GONE
            if later := next((one for one in self._log if one[0] > seen), None):
                seen = later[0]
                yield later[1]
            elif not self.script:
                self.idle.set()
                await asyncio.Event().wait()
            if ended == "end":
                return
            if ended == "bookmark" and not any(one > seen for one, _ in self._log):
                seen = self._version
                yield {
                    "type": "BOOKMARK",
                    "object": {"metadata": {"resourceVersion": str(seen)}},
                }

    def _step(self) -> str:
        """Do what the script has next, such as "cut+delete a". Return its first action."""
        actions = (self.script.pop(0) if self.script else "").split("+")
        for one in actions:
            self._do(*one.partition(" ")[::2])
        if actions[0] == "fail":
            raise ApiError(500, "InternalError", "etcd is slow")
        if actions[0] == "cut":
            raise ApiError(0, "Unreachable", "the connection is closed")
        return actions[0]

    def _do(self, action: str, name: str) -> None:
        if action == "write":
            self._responses.append(self._write(name))
        if action == "respond" and self._responses:
            self.store.put(self._responses.pop(0))
        if action == "create":
            self._write(name)
        if action == "relabel" and name in self._objects:
            self._write(name, labelled=LABEL not in self._objects[name]["metadata"]["labels"])
        if action == "delete" and name in self._objects:
            self._report("DELETED", self._next(self._objects.pop(name)))
        if action == "compact":
            self._compacted = self._version

    def _write(self, name: str, *, labelled: bool = True) -> Json:
        """Create or change an object."""
        before = self._objects.get(name)
        uid = before["metadata"]["uid"] if before else f"{name}-{self._version + 1}"
        labels = {LABEL: "digits"} if labelled else {}
        meta = {"name": name, "namespace": "team", "uid": uid, "labels": labels}
        obj = self._objects[name] = self._next({"metadata": meta})
        known = before is not None and LABEL in before["metadata"]["labels"]
        if known or labelled:
            kinds = {(True, True): "MODIFIED", (False, True): "ADDED", (True, False): "DELETED"}
            self._report(kinds[known, labelled], obj)
        return {**obj, "kind": DEPLOYMENT.kind}

    def _next(self, obj: Json) -> Json:
        self._version += 1
        return {"metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}

    def _report(self, kind: str, obj: Json) -> None:
        self._log.append((self._version, {"type": kind, "object": obj}))


GONE = [f"delete {name}" for name in "abcde"]
_OBJECTS = st.sampled_from("abcdefg")
_CHANGES = st.one_of(
    st.builds("{} {}".format, st.sampled_from(["write", "create", "delete", "relabel"]), _OBJECTS),
    st.sampled_from(["respond", "compact"]),
)
_STEPS = st.builds(
    lambda outcome, changes: "+".join([outcome, *changes]),
    st.sampled_from(["fail", "cut", "end", "bookmark", "go on"]),
    st.lists(_CHANGES, max_size=4),
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "_pause", lambda _: 0.0)


def reflected(script: list[str]) -> tuple[World, dict[str, str], set[str]]:
    """Run a script. Return the world, the versions in the store, and which inputs were reported."""

    async def run() -> tuple[World, dict[str, str], set[str]]:
        world = World(list(script))
        changed: set[str] = set()
        mirror = Mirror(world.store, DEPLOYMENT, "team", lambda key, *_: changed.add(key[1]))
        server: Any = world
        reflecting = asyncio.create_task(reflect(server, mirror))
        async with asyncio.timeout(20):
            await asyncio.wait(
                [reflecting, asyncio.create_task(world.idle.wait())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        assert not reflecting.done(), reflecting.exception()
        assert mirror.listed.is_set()
        reflecting.cancel()
        for late in world._responses:
            world.store.put(late)
        children = world.store.children(("team", "digits"))
        found = {name: one["metadata"]["resourceVersion"] for (_, name), one in children.items()}
        return world, found, changed

    return asyncio.run(run())


@given(st.lists(_STEPS, max_size=15))
def test_the_store_has_what_the_server_has(script):
    world, found, _ = reflected(script)
    assert found == world.selected


@pytest.mark.parametrize(
    ("script", "lists"),
    [
        ([], 1),
        (["go on"] * 3 + ["cut+delete a"], 1),
        (["go on"] * 3 + ["cut+delete a+compact"], 2),
        (["go on", "go on+delete e+compact"], 2),
        (["go on"] * 3 + ["bookmark+relabel a", "cut+compact"], 1),
        (["go on"] * 3 + ["go on+relabel a", "go on+relabel a"], 1),
        (["fail"] * 3, 4),
    ],
    ids=[
        "nothing happens",
        "deleted while the watch is cut",
        "compacted",
        "compacted between two pages",
        "a bookmark is where the next watch begins",
        "relabelled",
        "the list fails",
    ],
)
def test_it_lists_again_only_if_it_must(script, lists):
    world, found, changed = reflected(script)
    assert found == world.selected
    assert world.lists == lists
    assert changed == {"digits"}


def test_an_empty_list_is_complete():
    world, found, changed = reflected(["+".join(("fail", *GONE))])
    assert (found, world.lists, changed) == ({}, 2, set())


def test_the_last_object_that_is_deleted_between_two_lists_is_dropped():
    world, found, _ = reflected(["go on"] * 3 + ["+".join(("cut", *GONE, "compact"))])
    assert (found, world.lists) == ({}, 2)


def test_the_pause_grows_to_half_a_minute(monkeypatch):
    monkeypatch.undo()
    assert reflector._pause(0) == 0.0
    for failed, longest in ((1, 0.5), (2, 1.0), (4, 4.0), (7, 30.0), (2000, 30.0)):
        assert longest / 2 <= reflector._pause(failed) <= longest
