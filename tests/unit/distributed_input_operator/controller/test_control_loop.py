"""The control loop goes on while an input fails, and applies changes before it knows everything."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller import control_loop
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.control_loop import ControlLoop, EarlierChanges
from distributed_input_operator.controller.work_queue import Lane
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT, POLICY
from distributed_input_operator.reconcile.pace import RolloutState, Turn
from tests.unit.distributed_input_operator.contexts import context_of


def new_loop(api: Any, kinds: Any = (INPUT,)) -> tuple[ControllerContext, ControlLoop]:
    context = context_of(api)
    return context, ControlLoop(context, kinds, (), lambda: True)


ROLLING, WAITING, LAST = ("team", "rolling"), ("team", "waiting"), ("team", "last")


async def test_an_input_that_fails_without_a_request_is_not_repeated_and_gives_way(monkeypatch):
    context, loop = new_loop(None, ())
    reconciled: list[InputKey] = []
    done = asyncio.Event()

    async def reconcile(_: ControllerContext, key: InputKey) -> float:
        """Fail for one input, without ever waiting."""
        reconciled.append(key)
        if len(reconciled) > 50:
            raise asyncio.CancelledError  # The event loop would stop here for good.
        if key == WAITING:
            raise ApiError(500, "InternalError", "etcd is slow")
        if key == LAST:
            context.rollouts.request(key, RolloutState.WAITING)
            done.set()
        else:
            context.rollouts.request(key, RolloutState.SETTLED)
        return 300.0

    monkeypatch.setattr(control_loop, "reconcile", reconcile)
    for key, state in (
        (ROLLING, RolloutState.ROLLING),
        (WAITING, RolloutState.WAITING),
        (LAST, RolloutState.WAITING),
    ):
        context.rollouts.request(key, state)
        context.rollouts.end(key, failed=False)
    loop._queue.add(ROLLING)
    worker = asyncio.create_task(loop._queue.run(loop._work))
    await asyncio.wait([worker, asyncio.create_task(done.wait())], return_when="FIRST_COMPLETED")
    worker.cancel()
    await asyncio.wait([worker])
    assert reconciled == [ROLLING, WAITING, LAST]
    assert context.rollouts.state(LAST) is RolloutState.ROLLING


async def test_other_tasks_go_on_while_many_inputs_need_no_request(monkeypatch):
    """Changes, health checks and metrics do not wait until all inputs are reconciled."""
    context, loop = new_loop(None, ())
    inputs, rounds = 200, 0

    async def reconcile(_: ControllerContext, key: InputKey) -> None:
        """Need no request, like an input that is applied."""
        context.rollouts.request(key, RolloutState.SETTLED)

    monkeypatch.setattr(control_loop, "reconcile", reconcile)
    working = asyncio.create_task(loop._queue.run(loop._work))
    await asyncio.sleep(0)  # All of them wait for a key.
    for number in range(inputs):
        loop._queue.add((f"team-{number}", "a"), Lane.START)
    while loop._queue._queued or loop._queue._working:
        rounds += 1
        await asyncio.sleep(0)
    working.cancel()
    await asyncio.wait([working])
    assert rounds > inputs / 2


@pytest.mark.parametrize(("observed", "first"), [(2, True), (3, False)])
async def test_a_changed_input_that_failed_comes_before_others(monkeypatch, observed, first):
    monkeypatch.setattr(control_loop, "backoff", lambda *_: 0.0)
    context, loop = new_loop(None, ())
    context.store.put(stored(INPUT, "team", "failed", {"observedGeneration": observed}))
    loop._queue.add(LAST)
    loop._on_failure(("team", "failed"), ApiError(500, "InternalError", "etcd is slow"))
    async with asyncio.timeout(20):
        while len(loop._queue) < 2:
            await asyncio.sleep(0)
    assert (await loop._queue.get() == ("team", "failed")) is first


class SlowApi:
    """Has one changed input and one that is not. The list of all Deployments waits."""

    def __init__(self, *, policy: bool) -> None:
        self.policy = policy
        self.release = asyncio.Event()
        self.waits = asyncio.Event()

    async def objects(self, *_: Any) -> AsyncIterator[Any]:
        """List the children of one input: none."""
        nothing: list[Any] = []
        for one in nothing:
            yield one

    async def pages(self, *_: Any) -> AsyncIterator[Any]:
        self.waits.set()
        await self.release.wait()
        yield page()

    async def watch(self, *_: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    async def kopf(self, _: Any, mirrors: Any, __: Any) -> None:
        """List the custom kinds. Then the unchanged input changes."""
        inputs, policies = mirrors
        for name, observed in (("old", 3), ("changed", 2)):
            inputs.put(stored(INPUT, "team", name, {"observedGeneration": observed}))
        policies.add_page(page(*([stored(POLICY, "", "cluster", {})] if self.policy else [])))
        inputs.add_page(page(*(stored(INPUT, "team", name, {}) for name in ("old", "changed"))))
        await self.waits.wait()
        change = stored(INPUT, "team", "old", {"observedGeneration": 3})
        change["metadata"] |= {"generation": 4, "resourceVersion": "9"}
        inputs.put(change)
        await asyncio.Event().wait()


async def restored(_: Any) -> None: ...


def page(*items: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "8"}, "items": list(items)}


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
async def test_changes_are_applied_while_the_children_are_listed_unless_there_are_budgets(
    monkeypatch, policy
):
    api = SlowApi(policy=policy)
    _, loop = new_loop(api, (INPUT, POLICY, DEPLOYMENT))
    reconciled: list[str] = []
    first, all_keys = asyncio.Event(), asyncio.Event()

    async def reconcile(_: ControllerContext, key: InputKey) -> float:
        reconciled.append(key[1])
        if "old" in reconciled:
            first.set()
        if not api.release.is_set() or len(reconciled) < (3 if policy else 4):
            return 300.0
        all_keys.set()
        return 300.0

    monkeypatch.setattr(control_loop, "reconcile", reconcile)
    monkeypatch.setattr(control_loop, "watch", api.kopf)
    monkeypatch.setattr(control_loop.budgets, "restore", restored)
    running = asyncio.create_task(loop.run())
    await asyncio.wait_for(api.waits.wait(), 20)
    if not policy:
        await asyncio.wait_for(first.wait(), 20)
    assert sorted(reconciled) == ([] if policy else ["old"]), "the other one has changed before"
    assert loop._lists_alone is not policy
    api.release.set()
    await asyncio.wait_for(all_keys.wait(), 20)
    assert set(reconciled) == {"changed", "old", "cluster"}
    assert not loop._lists_alone
    running.cancel()
    await asyncio.wait([running])


def test_an_input_that_is_deleted_while_the_children_are_listed_does_not_block_rollouts():
    """Without children it is never reconciled."""
    context, loop = new_loop(None)
    context.store.put(stored(INPUT, "team", "gone", {"observedGeneration": 3}))
    loop._begin_first_changes()
    assert context.rollouts.request(LAST, RolloutState.WAITING) is Turn.WAIT
    loop._on_change(("team", "gone"), INPUT, None)
    assert context.rollouts.next() == [LAST]


async def test_an_input_that_is_deleted_while_claims_are_entered_is_reconciled(monkeypatch):
    """Its claim would never be released."""
    context, loop = new_loop(None)
    context.store.put(stored(INPUT, "team", "gone", {"observedGeneration": 3}))

    async def restore(_: Any) -> None:
        loop._on_change(("team", "gone"), INPUT, None)

    monkeypatch.setattr(control_loop.budgets, "restore", restore)
    await loop._queue_all()
    queued = {await asyncio.wait_for(loop._queue.get(), 20) for _ in range(len(loop._queue))}
    assert ("team", "gone") in queued


async def test_inputs_of_another_operator_are_not_among_the_first_changes():
    context, loop = new_loop(None)
    own, foreign, later = (stored(INPUT, "team", name, {}) for name in ("own", "foreign", "b"))
    change = copy.deepcopy(own)
    change["metadata"] |= {"generation": 4, "resourceVersion": "9"}
    for one in (foreign, later):
        one["spec"]["managedBy"] = "distributed-input.dev/theirs"
    context.store.put(own)
    context.store.put(foreign)
    loop._begin_first_changes()
    loop._mirrors[0].put(later)
    loop._mirrors[0].put(change)
    assert len(loop._queue) == 1
    assert await loop._queue.get() == ("team", "own")


async def test_a_new_leader_writes_rates_as_rarely_as_the_previous_one(monkeypatch):
    context, loop = new_loop(None)
    for number in range(600):
        status = {"trainers": {"reading": 1}} if number else {}
        context.store.put(stored(INPUT, "team", f"read-{number}", status))

    monkeypatch.setattr(control_loop.budgets, "restore", restored)
    assert context.looks.write_seconds == 30.0
    await loop._queue_all()
    assert context.looks.write_seconds == 59.9


@pytest.mark.parametrize("name", ["old-7", "earlier-7", "new"])
async def test_a_change_now_goes_before_earlier_changes_and_before_unchanged_inputs(
    monkeypatch, name
):
    context, loop = new_loop(None)
    for number in range(20):
        for kind, observed in (("old", 3), ("earlier", 2)):
            one = stored(INPUT, "team", f"{kind}-{number}", {"observedGeneration": observed})
            context.store.put(one)

    monkeypatch.setattr(control_loop.budgets, "restore", restored)
    loop._begin_first_changes()
    await loop._queue_all()
    change = stored(INPUT, "team", name, {"observedGeneration": 3})
    change["metadata"] |= {"generation": 4, "resourceVersion": "9"}
    loop._mirrors[0].put(change)
    order = []
    while len(loop._queue):
        key = await asyncio.wait_for(loop._queue.get(), 20)
        loop._queue.done(key)
        order.append(key[1])
    assert order[0] == name
    assert all(one.startswith("earlier") for one in order[1:8])
    assert {"old-0", "old-19", "earlier-0", "earlier-19"} <= set(order)


async def test_a_task_that_fails_ends_the_loop(monkeypatch):
    api = SlowApi(policy=False)
    _, loop = new_loop(api, (INPUT, POLICY, DEPLOYMENT))

    async def broken(*_: Any) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(control_loop, "watch", api.kopf)
    monkeypatch.setattr(control_loop, "reflect", broken)
    async with asyncio.timeout(20):
        with pytest.RaisesGroup(KeyError):
            await loop.run()


async def test_the_children_of_an_input_that_changes_are_listed_alone_until_they_are_known(
    monkeypatch,
):
    listed: list[Any] = []

    class Failing(SlowApi):
        async def objects(self, kind: Any, namespace: str, selector: str) -> AsyncIterator[Any]:
            listed.append((kind, namespace, selector))
            if len(listed) == 1:
                raise ApiError(403, "Forbidden", "no list")
            yield stored(DEPLOYMENT, "team", "child", {})

    async def reconcile(_: ControllerContext, key: InputKey) -> float:
        reconciled.append(key)
        return 300.0

    reconciled: list[InputKey] = []
    monkeypatch.setattr(control_loop, "reconcile", reconcile)
    _, loop = new_loop(Failing(policy=False), (INPUT, POLICY, DEPLOYMENT))
    loop._begin_first_changes()
    assert not await loop._reconcile(LAST), "a retry lists them again"
    assert reconciled == []
    for _ in range(2):
        assert await loop._reconcile(LAST)
    assert listed == [(DEPLOYMENT, "team", "distributed-input.dev/input=last")] * 2
    assert reconciled == [LAST, LAST]
    loop._lists_alone = False
    assert await loop._reconcile(WAITING)
    assert len(listed) == 2, "the list of all has its children"
    loop._queue.forget(LAST)
    loop._queue.forget(WAITING)


def version(generation: int, observed: int | None, uid: str = "u-1") -> Any:
    status = {} if observed is None else {"observedGeneration": observed}
    return {"metadata": {"generation": generation, "uid": uid}, "status": status}


@pytest.mark.parametrize(
    ("first", "now", "lane"),
    [
        (version(3, 3), version(3, 3), Lane.START),
        (version(3, 2), version(3, 3), Lane.START),
        (version(3, 2), None, Lane.START),
        (version(3, 2), version(3, 2), Lane.EARLIER_CHANGE),
        (version(1, None), version(1, None), Lane.EARLIER_CHANGE),
        (version(3, 1), version(3, 2), Lane.EARLIER_CHANGE),
        (version(3, 3), version(4, 3), Lane.CHANGE),
        (version(3, 2), version(4, 2), Lane.CHANGE),
        (version(1, None), version(1, None, "u-2"), Lane.CHANGE),
    ],
)
def test_the_spec_that_a_new_leader_found_is_an_earlier_change_until_it_is_applied(
    first, now, lane
):
    assert EarlierChanges([(LAST, first)]).lane(LAST, now, Lane.START) is lane
