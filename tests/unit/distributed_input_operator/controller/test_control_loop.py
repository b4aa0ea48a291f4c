"""The control loop goes on while an input fails, and applies changes before it knows everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller import control_loop
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.control_loop import ControlLoop
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.tokens import InputTokens
from distributed_input_operator.controller.work_queue import Lane
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT, POLICY
from distributed_input_operator.kube.store import Store
from distributed_input_operator.reconcile.pace import RolloutState, Turn
from tests.unit.distributed_input_operator.snapshots import SETTINGS

ROLLING, WAITING, LAST = ("team", "rolling"), ("team", "waiting"), ("team", "last")


@pytest.mark.parametrize("raises", [True, False])
def test_an_input_that_fails_without_a_request_is_not_repeated_and_gives_way(monkeypatch, raises):
    api: Any = None
    context = ControllerContext(
        api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
    )
    loop = ControlLoop(context, (), (), lambda: True)
    reconciled: list[InputKey] = []
    done = asyncio.Event()

    async def reconcile(_: ControllerContext, key: InputKey) -> float:
        """Fail for one input, without ever waiting."""
        reconciled.append(key)
        if len(reconciled) > 50:
            raise asyncio.CancelledError  # The event loop would stop here for good.
        if key == WAITING:
            if raises:
                raise ApiError(500, "InternalError", "etcd is slow")
            return 300.0
        if key == LAST:
            context.rollouts.request(key, RolloutState.WAITING)
            done.set()
        else:
            context.rollouts.request(key, RolloutState.SETTLED)
        return 300.0

    monkeypatch.setattr(control_loop, "reconcile", reconcile)

    async def scenario() -> None:
        for key, state in (
            (ROLLING, RolloutState.ROLLING),
            (WAITING, RolloutState.WAITING),
            (LAST, RolloutState.WAITING),
        ):
            context.rollouts.request(key, state)
            context.rollouts.end(key, failed=False)
        loop._queue.add(ROLLING)
        worker = asyncio.create_task(loop._work_forever())
        await asyncio.wait(
            [worker, asyncio.create_task(done.wait())], return_when="FIRST_COMPLETED"
        )
        worker.cancel()
        await asyncio.wait([worker])

    asyncio.run(scenario())
    assert reconciled == [ROLLING, WAITING, LAST]
    assert context.rollouts.state(LAST) is RolloutState.ROLLING


@pytest.mark.parametrize(("observed", "first"), [(2, True), (3, False)])
def test_a_changed_input_that_failed_comes_before_others(monkeypatch, observed, first):
    monkeypatch.setattr(control_loop, "_backoff", lambda _: 0.0)
    api: Any = None
    context = ControllerContext(
        api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
    )
    loop = ControlLoop(context, (), (), lambda: True)

    async def scenario() -> None:
        context.store.put(stored(INPUT, "team", "failed", {"observedGeneration": observed}))
        loop._queue.add(LAST)
        loop._on_failure(("team", "failed"), ApiError(500, "InternalError", "etcd is slow"))
        async with asyncio.timeout(20):
            while len(loop._queue) < 2:
                await asyncio.sleep(0)
        assert (await loop._queue.get() == ("team", "failed")) is first

    asyncio.run(scenario())


class SlowApi:
    """Has one changed input and one that is not. The list of all Deployments waits."""

    def __init__(self, *, policy: bool) -> None:
        self.policy = policy
        self.release = asyncio.Event()
        self.waits = asyncio.Event()
        self.watch_ended = asyncio.Event()

    async def request(self, *_: Any, **__: Any) -> Any:
        return {"metadata": {"resourceVersion": "1"}, "items": []}

    async def objects(self, kind: Any, namespace: Any, selector: str = "") -> AsyncIterator[Any]:
        if kind is INPUT:
            for name, observed in (("old", 3), ("changed", 2)):
                yield stored(kind, "team", name, {"observedGeneration": observed})
        if kind is POLICY and self.policy:
            yield stored(kind, "", "cluster", {})
        if kind is DEPLOYMENT and not selector:
            self.waits.set()
            await self.release.wait()

    async def watch(self, *_: Any) -> AsyncIterator[Any]:
        meta = stored(INPUT, "team", "old", {"observedGeneration": 3})["metadata"]
        meta |= {"generation": 4, "resourceVersion": "9"}
        yield {"type": "MODIFIED", "object": {"metadata": meta, "spec": {}}}
        try:
            await asyncio.Event().wait()
        finally:
            self.watch_ended.set()

    async def metadata(self, *_: Any) -> AsyncIterator[Any]:
        for name in ("old", "changed"):
            yield stored(INPUT, "team", name, {})["metadata"]


def stored(kind: Any, namespace: str, name: str, status: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "uid": f"u-{name}", "resourceVersion": "5"}
    spec: dict[str, Any] = {}
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {**meta, "generation": 3},
        "spec": spec,
        "status": status,
    }


@pytest.mark.parametrize("policy", [False, True])
def test_changes_are_applied_while_the_children_are_listed_unless_there_are_budgets(
    monkeypatch, policy
):
    async def scenario() -> None:
        api: Any = SlowApi(policy=policy)
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        loop = ControlLoop(context, (INPUT, POLICY, DEPLOYMENT), (), lambda: True)
        reconciled: list[str] = []
        two, all_keys = asyncio.Event(), asyncio.Event()

        async def reconcile(_: ControllerContext, key: InputKey) -> float:
            reconciled.append(key[1])
            if {"changed", "old"} <= set(reconciled):
                two.set()
            if not api.release.is_set() or len(reconciled) < (3 if policy else 4):
                return 300.0
            all_keys.set()
            return 300.0

        async def nothing(*_: Any) -> None:
            await asyncio.Event().wait()

        async def restored(_: Any) -> None: ...

        monkeypatch.setattr(control_loop, "reconcile", reconcile)
        monkeypatch.setattr(control_loop, "watch", nothing)
        monkeypatch.setattr(control_loop.budgets, "restore", restored)
        running = asyncio.create_task(loop.run())
        await asyncio.wait_for(api.waits.wait(), 20)
        if not policy:
            await asyncio.wait_for(two.wait(), 20)
        assert sorted(reconciled) == ([] if policy else ["changed", "old"])
        assert (loop._first is None) is policy
        api.release.set()
        await asyncio.wait_for(all_keys.wait(), 20)
        assert set(reconciled) == {"changed", "old", "cluster"}
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(scenario())


def loop_without_children(context: ControllerContext) -> ControlLoop:
    """Return a loop that does not know the children yet, with its first changes."""
    loop = ControlLoop(context, (INPUT,), (), lambda: True)
    loop._start_first_changes()
    return loop


def test_an_input_that_is_deleted_while_the_children_are_listed_does_not_block_rollouts():
    """Without children it is never reconciled."""
    api: Any = None
    context = ControllerContext(
        api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
    )
    gone = stored(INPUT, "team", "gone", {"observedGeneration": 3})
    context.store.put(gone)
    loop = loop_without_children(context)
    assert context.rollouts.request(LAST, RolloutState.WAITING) is Turn.WAIT
    loop._on_event("DELETED", gone)
    assert context.rollouts.next() == [LAST]


def test_an_input_that_is_deleted_while_claims_are_entered_is_reconciled(monkeypatch):
    """Its claim would never be released."""

    async def scenario() -> None:
        api: Any = SlowApi(policy=True)
        api.release.set()
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        gone = stored(INPUT, "team", "gone", {"observedGeneration": 3})
        context.store.put(gone)
        loop = ControlLoop(context, (INPUT,), (), lambda: True)

        async def restore(_: Any) -> None:
            loop._on_event("DELETED", gone)

        monkeypatch.setattr(control_loop.budgets, "restore", restore)
        await loop._list_children()
        queued = {await asyncio.wait_for(loop._queue.get(), 20) for _ in range(len(loop._queue))}
        assert ("team", "gone") in queued

    asyncio.run(scenario())


def test_inputs_of_another_operator_are_not_among_the_first_changes():
    async def scenario() -> None:
        api: Any = None
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        own, foreign, later = (stored(INPUT, "team", name, {}) for name in ("own", "foreign", "b"))
        for one in (foreign, later):
            one["spec"]["operatorClass"] = "theirs"
        context.store.put(own)
        context.store.put(foreign)
        loop = loop_without_children(context)
        loop._on_event("ADDED", later)
        assert loop._first
        assert list(loop._first._lanes) == [("team", "own")]

    asyncio.run(scenario())


def test_a_new_leader_writes_rates_as_rarely_as_the_previous_one(monkeypatch):
    async def scenario() -> None:
        api: Any = SlowApi(policy=False)
        api.release.set()
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        for number in range(600):
            status = {"live": {"consumers": 1}} if number else {}
            context.store.put(stored(INPUT, "team", f"read-{number}", status))

        async def restored(_: Any) -> None: ...

        monkeypatch.setattr(control_loop.budgets, "restore", restored)
        assert context.looks.write_seconds == 30.0
        await ControlLoop(context, (INPUT,), (), lambda: True)._list_children()
        assert context.looks.write_seconds == 59.9

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["old-7", "earlier-7", "new"])
def test_a_change_now_goes_before_earlier_changes_and_before_unchanged_inputs(monkeypatch, name):
    async def scenario() -> None:
        api: Any = SlowApi(policy=False)
        api.release.set()
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        for number in range(20):
            for kind, observed in (("old", 3), ("earlier", 2)):
                one = stored(INPUT, "team", f"{kind}-{number}", {"observedGeneration": observed})
                context.store.put(one)

        async def restored(_: Any) -> None: ...

        monkeypatch.setattr(control_loop.budgets, "restore", restored)
        loop = ControlLoop(context, (INPUT,), (), lambda: True)
        loop._start_first_changes()
        await loop._list_children()
        change = stored(INPUT, "team", name, {"observedGeneration": 3})
        change["metadata"] |= {"generation": 4, "resourceVersion": "9"}
        loop._on_event("MODIFIED", change)
        order = []
        while len(loop._queue):
            key = await asyncio.wait_for(loop._queue.get(), 20)
            loop._queue.done(key)
            order.append(key[1])
        assert order[0] == name
        assert all(one.startswith("earlier") for one in order[1:8])
        assert {"old-0", "old-19", "earlier-0", "earlier-19"} <= set(order)

    asyncio.run(scenario())


def test_the_first_watch_ends_when_kopf_has_listed_the_inputs(monkeypatch):
    async def scenario() -> None:
        api: Any = SlowApi(policy=False)
        api.release.set()
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        loop = ControlLoop(context, (INPUT, DEPLOYMENT), (), lambda: True)

        async def kopf(_: Any, __: Any, on_event: Any, on_list: Any) -> None:
            for name in ("old", "changed"):
                assert not api.watch_ended.is_set()
                on_event(None, stored(INPUT, "team", name, {}))
            on_list(INPUT, None)
            await asyncio.Event().wait()

        async def reconcile(*_: Any) -> float:
            return 300.0

        async def restored(_: Any) -> None: ...

        monkeypatch.setattr(control_loop, "reconcile", reconcile)
        monkeypatch.setattr(control_loop, "watch", kopf)
        monkeypatch.setattr(control_loop.budgets, "restore", restored)
        running = asyncio.create_task(loop.run())
        await asyncio.wait_for(api.watch_ended.wait(), 20)
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    asyncio.run(scenario())


def test_a_repeated_list_does_not_hide_a_deletion(monkeypatch):
    """The first watches would wait for an input that kopf never lists, and never end."""
    monkeypatch.setattr(control_loop, "_backoff", lambda _: 0.0)

    class FailingApi(SlowApi):
        version = 6

        async def request(self, *_: Any, **__: Any) -> Any:
            self.version += 1
            return {"metadata": {"resourceVersion": str(self.version)}}

        async def objects(self, kind: Any, *_: Any) -> AsyncIterator[Any]:
            if not context.store.known():  # The first attempt.
                yield stored(kind, "team", "gone", {})
                raise ApiError(500, "InternalError", "etcd is slow")

    api: Any = FailingApi(policy=False)
    tokens = InputTokens(api, "operators")
    context = ControllerContext(api, Store(), tokens, DispatcherClient(), SETTINGS)
    loop = ControlLoop(context, (INPUT,), ("team", "other"), lambda: True)
    versions: Any = {}
    asyncio.run(control_loop._until_listed(lambda: loop._list_inputs(versions)))
    assert context.store.known() == [("team", "gone")]
    assert versions == {"team": "7", "other": "8"}


def test_namespaces_take_turns():
    async def scenario() -> None:
        api: Any = SlowApi(policy=False)
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        loop = ControlLoop(context, (INPUT,), (), lambda: True)
        for key in (("loud", "a"), ("loud", "b"), ("quiet", "a")):
            loop._queue.add(key, Lane.CHANGE)
        assert [(await loop._queue.get())[0] for _ in range(3)] == ["loud", "quiet", "loud"]

    asyncio.run(scenario())


def test_kopf_begins_after_the_looks():
    """At the end, it waits 5 s for tasks that began after it."""

    async def scenario() -> None:
        api: Any = SlowApi(policy=False)
        context = ControllerContext(
            api, Store(), InputTokens(api, "operators"), DispatcherClient(), SETTINGS
        )
        loop = ControlLoop(context, (INPUT,), (), lambda: True)
        first: Any = None
        coroutines = loop._background(first)
        tasks = [asyncio.create_task(one) for one in coroutines]
        assert coroutines[-1].__name__ == "watch"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(scenario())
