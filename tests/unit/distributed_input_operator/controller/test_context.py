"""The state of a deleted input is dropped: its token, its measurements, its autoscaling state."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed_input_operator.autoscaling.decision import AutoscalingState
from distributed_input_operator.controller.channels import DispatcherAccess
from distributed_input_operator.controller.reconcile_input import reconcile
from distributed_input_operator.controller.tokens import secret_of
from tests.unit.distributed_input_operator.contexts import context_of
from tests.unit.distributed_input_operator.snapshots import KEY_SECRET, resource

KEY = ("team", "digits")


async def test_the_state_of_a_deleted_input_is_dropped():
    class Secrets:
        async def get(self, *_: object) -> dict[str, Any]:
            return KEY_SECRET

        async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
            return manifest

    context = context_of(Secrets())
    secret = secret_of(resource(), "token")
    await context.tokens.create(resource(), secret, young=True)
    assert not context.tokens.is_due(resource(), applied=False)
    # Nothing listens there.
    await context.dispatchers.measure(KEY, "u-1", "127.0.0.1:1", DispatcherAccess)
    assert len(context.dispatchers) == 1
    assert await reconcile(context, KEY) is None  # The store has no such input.
    assert context.tokens.is_due(resource(), applied=False)
    assert len(context.dispatchers) == 0


def test_the_autoscaling_state_belongs_to_one_input_and_is_dropped_with_it():
    context, state = context_of(None), AutoscalingState(4)
    context.set_autoscaling_state(KEY, "u-1", state)
    assert context.autoscaling_state(KEY, "u-1") == state
    assert context.autoscaling_state(KEY, "u-2") is None, "another input of the same name"
    context.set_autoscaling_state(KEY, "u-1", None)
    assert context.autoscaling_state(KEY, "u-1") is None
    context.set_autoscaling_state(KEY, "u-1", state)
    asyncio.run(reconcile(context, KEY))
    assert context.autoscaling_state(KEY, "u-1") is None
