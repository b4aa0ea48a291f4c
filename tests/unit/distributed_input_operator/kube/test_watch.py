"""kopf's events show when a list has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest

from distributed_input_operator.kube import watch
from distributed_input_operator.kube.kinds import INPUT, POD, POLICY, Kind
from distributed_input_operator.kube.watch import _ListTracker, _NoMemories

Listed = list[tuple[Kind, str | None]]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_START_SECONDS", 0.05)
    monkeypatch.setattr(watch, "_LIST_SECONDS", 0.02)


def reported(body: Callable[[_ListTracker], Awaitable[None]], *namespaces: str) -> Listed:
    """Run `body` with a tracker, wait until no timer is left, and return what was reported."""
    listed: Listed = []

    async def run() -> None:
        tracker = _ListTracker(
            [INPUT, POD, POLICY], namespaces, lambda *place: listed.append(place)
        )
        await body(tracker)
        while tracker._timers:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    return listed


def test_each_kind_and_namespace_is_reported_once_after_the_start() -> None:
    async def body(tracker: _ListTracker) -> None:
        tracker.start()

    listed = reported(body, "a", "b")
    assert len(listed) == len(set(listed))
    assert set(listed) == {(INPUT, "a"), (INPUT, "b"), (POD, "a"), (POD, "b"), (POLICY, None)}


def test_the_objects_of_a_list_are_reported_once() -> None:
    async def body(tracker: _ListTracker) -> None:
        for _ in range(3):
            tracker.add("Pod", None)

    assert reported(body) == [(POD, None)]


def test_a_repeated_list_is_reported_again() -> None:
    async def body(tracker: _ListTracker) -> None:
        tracker.add("Pod", None)
        while tracker._timers:
            await asyncio.sleep(0.01)
        tracker.add("Pod", None)

    assert reported(body) == [(POD, None)] * 2


def test_changes_are_no_list() -> None:
    async def body(tracker: _ListTracker) -> None:
        for kind in ("ADDED", "MODIFIED", "DELETED"):
            tracker.add("Pod", kind)

    assert reported(body) == []


def test_kopf_keeps_nothing_of_the_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    async def operator(**settings: Any) -> None:
        given.update(settings)

    async def run() -> None:
        await watch.watch([POD], (), lambda *_: None, lambda *_: None)
        memories = given["memories"]
        assert isinstance(memories, _NoMemories)
        one: Any = {"metadata": {"uid": "u"}}
        await memories.recall(one, noticed_by_listing=True)
        assert not list(memories.iter_all_memories())

    monkeypatch.setattr(kopf, "operator", operator)
    asyncio.run(run())
