"""The control loop goes on while an input fails, however soon a slot is free for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller import control_loop
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.control_loop import ControlLoop
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.tokens import InputTokens
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.store import Store
from distributed_input_operator.reconcile.pace import RolloutState
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
