"""Changes during the first list: the children of changed inputs are listed alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from distributed_input_operator.controller.startup import first_changes
from distributed_input_operator.controller.startup.first_changes import FirstChanges
from distributed_input_operator.kube.api import ApiError, backoff
from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT, POD, POLICY

KEY = ("team", "digits")


class FakeApi:
    """Lists one object of each kind. It fails as often as `fails`, with a status."""

    def __init__(self, fails: int = 0, status: int = 403) -> None:
        self.fails, self.status = fails, status
        self.listed: list[tuple[Any, Any, str]] = []

    async def objects(self, kind: Any, namespace: Any, selector: str) -> AsyncIterator[Any]:
        if self.fails:
            self.fails -= 1
            raise ApiError(self.status, "Failure", "no list")
        self.listed.append((kind, namespace, selector))
        yield {"kind": kind.kind}


Body = Callable[[FirstChanges], Awaitable[None]]


def run(api: Any, put: list[Any], ready: list[Any], body: Body) -> None:
    """Run a story with the first changes. `ready` gets the inputs."""

    async def story() -> None:
        kinds = (INPUT, DEPLOYMENT, POD, POLICY)
        first = FirstChanges(api, kinds, put.append, ready.append)
        running = asyncio.create_task(first.run())
        async with asyncio.timeout(20):
            await body(first)
        running.cancel()
        await asyncio.wait([running], timeout=20)
        assert running.cancelled()

    asyncio.run(story())


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def pause() -> None:
    """Let all tasks go on that can."""
    for _ in range(50):
        await asyncio.sleep(0)


def test_the_children_of_a_changed_input_are_listed_once_before_it_is_ready():
    api = FakeApi()
    put: list[Any] = []
    ready: list[Any] = []

    async def body(first: FirstChanges) -> None:
        first.add(KEY)
        first.add(KEY)
        assert ready == []
        await until(lambda: ready)
        selector = "distributed-input.dev/input=digits"
        assert api.listed == [(kind, "team", selector) for kind in (DEPLOYMENT, POD)]
        assert put == [{"kind": "Deployment"}, {"kind": "Pod"}]
        assert ready == [KEY]
        first.add(KEY)  # A second change.
        assert ready == [KEY, KEY]
        await pause()
        assert len(api.listed) == 2

    run(api, put, ready, body)


async def test_a_change_while_the_children_are_listed_lists_them_once():
    class OwnChange(FakeApi):
        async def objects(self, kind: Any, namespace: Any, selector: str) -> AsyncIterator[Any]:
            first.add(KEY)
            async for one in super().objects(kind, namespace, selector):
                yield one

    api: Any = OwnChange()
    ready: list[Any] = []
    first = FirstChanges(api, (DEPLOYMENT,), lambda _: None, ready.append)
    first.add(KEY)
    running = asyncio.create_task(first.run())
    await pause()
    assert not running.done()
    running.cancel()
    await asyncio.wait([running], timeout=20)
    assert len(api.listed) == 1
    assert ready == [KEY]


def test_an_input_whose_children_cannot_be_listed_waits_for_the_list_of_all(monkeypatch):
    monkeypatch.setattr(first_changes, "backoff", lambda *_: 0.0)
    ready: list[Any] = []
    api = FakeApi(fails=1)

    async def body(first: FirstChanges) -> None:
        first.add(KEY)
        await until(lambda: not api.fails)
        await pause()
        assert ready == []

    run(api, [], ready, body)


@pytest.mark.parametrize("status", [0, 429, 500, 504])
def test_a_list_that_fails_is_repeated(monkeypatch, status):
    monkeypatch.setattr(first_changes, "backoff", lambda *_: 0.0)
    ready: list[Any] = []

    async def body(first: FirstChanges) -> None:
        first.add(KEY)
        await until(lambda: ready)

    run(FakeApi(fails=3, status=status), [], ready, body)
    assert ready == [KEY]


def test_a_list_that_fails_delays_no_other_input(monkeypatch):
    monkeypatch.setattr(first_changes, "backoff", lambda *_: 3600.0)
    ready: list[Any] = []
    api = FakeApi(fails=80, status=500)

    async def body(first: FirstChanges) -> None:
        for number in range(40):
            first.add(("team", str(number)))
        await until(lambda: not api.fails)
        first.add(KEY)
        await until(lambda: ready)

    run(api, [], ready, body)
    assert ready == [KEY]


def test_the_pause_grows_to_8_s():
    longest = first_changes._MAX_PAUSE_SECONDS
    assert [backoff(count, longest) for count in (1, 2, 3, 5, 99)] == [0.5, 1, 2, 8, 8]


def test_the_next_change_lists_again_what_could_not_be_listed():
    api = FakeApi(fails=1)
    put: list[Any] = []
    ready: list[Any] = []

    async def body(first: FirstChanges) -> None:
        first.add(KEY)
        await until(lambda: not api.fails)
        await pause()
        first.add(KEY)
        assert ready == [], "its children are not known"
        await until(lambda: ready)
        assert {"kind": "Deployment"} in put
        assert ready == [KEY]

    run(api, put, ready, body)


class BusyApi(FakeApi):
    """Needs a turn of the event loop for each list."""

    async def objects(self, *_: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(0)
        yield {}


def test_namespaces_take_turns():
    ready: list[Any] = []

    async def body(first: FirstChanges) -> None:
        for number in range(40):
            first.add(("loud", str(number)))
        first.add(("quiet", "a"))
        await until(lambda: len(ready) == 41)
        assert ready.index(("quiet", "a")) < 16

    run(BusyApi(), [], ready, body)
