"""What is gone or not known any more leaves nothing behind: no token, no measurement, no metric."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from distributed_input_operator import metrics
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.controller import input_metrics
from distributed_input_operator.controller.dispatchers import Dispatchers
from distributed_input_operator.controller.observe import Sources
from distributed_input_operator.controller.reconcile import reconcile
from distributed_input_operator.controller.tokens import Tokens
from distributed_input_operator.kube.store import Store
from tests.unit.distributed_input_operator.snapshots import NOW, SETTINGS, plan, resource, snapshot

KEY = ("team", "digits")
_SECRET = {"metadata": {"name": "digits-distributed-input"}, "data": {"token": "c2VjcmV0"}}


class Secrets:
    """An API server that has one Secret, and counts who asks."""

    def __init__(self) -> None:
        self.asked = 0

    async def get(self, *_: object) -> dict[str, Any]:
        self.asked += 1
        return _SECRET


def test_the_token_of_an_input_that_is_gone_is_forgotten():
    async def story() -> list[int]:
        api: Any = Secrets()
        sources = Sources(api, Store(), Tokens(api), Dispatchers(), SETTINGS)
        counts = []
        for _ in range(2):
            await sources.tokens.token(resource())
            await sources.tokens.token(resource())
            counts.append(api.asked)
            assert await reconcile(sources, KEY) is None  # the store knows of no such input
        return counts

    assert asyncio.run(story()) == [1, 2]


def test_the_token_of_another_input_of_the_same_name_is_none_of_its_own():
    async def story() -> int:
        api: Any = Secrets()
        tokens = Tokens(api)
        for uid in ("u-1", "u-2"):
            one = resource()
            meta = one.metadata.model_copy(update={"uid": uid})
            await tokens.token(one.model_copy(update={"metadata": meta}))
        return int(api.asked)

    assert asyncio.run(story()) == 2


def test_the_words_of_a_dispatcher_that_is_gone_are_forgotten():
    async def story() -> bool:
        api: Any = Secrets()
        sources = Sources(api, Store(), Tokens(api), Dispatchers(), SETTINGS)
        await sources.dispatchers.ask(KEY, "u-1", "127.0.0.1:1", "t")  # nobody listens there
        before = len(sources.dispatchers)
        await reconcile(sources, KEY)
        return (before, len(sources.dispatchers)) == (1, 0)

    assert asyncio.run(story())


def test_what_a_silent_dispatcher_said_last_is_no_metric():
    told = replace(
        snapshot(), measured=Measurement(consumers=1, demand=400, busy_rate=100, useful_workers=9)
    )
    input_metrics.set_input(KEY, told, plan(told, NOW))
    assert b'workers_recommended{input="digits",namespace="team"}' in metrics.exposition()
    silent = replace(told, measured=None)
    input_metrics.set_input(KEY, silent, plan(silent, NOW))
    shown = metrics.exposition().decode()
    for name in ("workers_recommended", "stall_ratio", "rows_per_second"):
        assert f'distributed_input_{name}{{input="digits"' not in shown
    assert 'distributed_input_workers_desired{input="digits"' in shown
    input_metrics.remove_input(KEY)
    assert 'input="digits"' not in metrics.exposition().decode()
