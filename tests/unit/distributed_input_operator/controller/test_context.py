"""The state of a deleted input is dropped: its token, its measurements, its autoscaling state."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.controller.channels import DispatcherAccess
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.reconcile_input import reconcile
from distributed_input_operator.controller.tokens import secret_of
from tests.unit.distributed_input_operator.contexts import context_of
from tests.unit.distributed_input_operator.snapshots import KEY_SECRET, resource

KEY = ("team", "digits")


class Secrets:
    """An API server that counts the Secrets that are created."""

    def __init__(self) -> None:
        self.created = 0

    async def get(self, *_: object) -> dict[str, Any]:
        return KEY_SECRET

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.created += 1
        return manifest


def new_context() -> ControllerContext:
    api: Any = Secrets()
    return context_of(api)


async def test_the_token_of_a_deleted_input_is_dropped():
    context = new_context()
    api: Any = context.api
    counts = []
    for _ in range(2):
        for _ in range(2):
            if context.tokens.is_due(resource(), applied=False):
                secret = secret_of(resource(), "token")
                await context.tokens.create(resource(), secret, young=True)
        counts.append(api.created)
        assert await reconcile(context, KEY) is None  # The store has no such input.
    assert counts == [1, 2]


async def test_the_measurements_of_a_deleted_input_are_dropped():
    context = new_context()
    # Nothing listens there.
    await context.dispatchers.measure(KEY, "u-1", "127.0.0.1:1", DispatcherAccess)
    before = len(context.dispatchers)
    await reconcile(context, KEY)
    assert (before, len(context.dispatchers)) == (1, 0)


def test_the_autoscaling_state_belongs_to_one_input_and_is_dropped_with_it():
    context, state = new_context(), AutoscalingState(4)
    context.set_autoscaling_state(KEY, "u-1", state)
    assert context.autoscaling_state(KEY, "u-1") == state
    assert context.autoscaling_state(KEY, "u-2") is None, "another input of the same name"
    context.set_autoscaling_state(KEY, "u-1", None)
    assert context.autoscaling_state(KEY, "u-1") is None
    context.set_autoscaling_state(KEY, "u-1", state)
    asyncio.run(reconcile(context, KEY))
    assert context.autoscaling_state(KEY, "u-1") is None
