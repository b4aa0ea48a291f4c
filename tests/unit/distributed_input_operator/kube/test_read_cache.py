"""Reads that several callers share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distributed_input_operator.kube import read_cache
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import INPUT
from distributed_input_operator.kube.read_cache import ReadCache
from distributed_input_operator.objects.kind import Kind


class SlowServer:
    """An API server that responds in order once `answering` is set, and counts the reads."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.answering = asyncio.Event()
        self.reads = 0

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        self.reads += 1
        answer = self._answers.pop(0)
        await self.answering.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


def shared(api: Any) -> ReadCache:
    return ReadCache(api)


def start_read(api: SlowServer, cache: ReadCache) -> Any:
    return asyncio.create_task(cache.get(INPUT, "ml", "train"))


async def test_concurrent_callers_share_one_read():
    api = SlowServer({"a": 1})
    cache = shared(api)
    first, second = start_read(api, cache), start_read(api, cache)
    await asyncio.sleep(0)
    api.answering.set()
    assert await first == await second == {"a": 1}
    assert await start_read(api, cache) == {"a": 1}
    assert api.reads == 1


async def test_a_read_expires(monkeypatch):
    monkeypatch.setattr(read_cache, "SECONDS", 0.0)
    api = SlowServer({"a": 1}, {"a": 2})
    api.answering.set()
    cache = shared(api)
    assert await start_read(api, cache) == {"a": 1}
    await asyncio.sleep(0.001)  # The event loop runs the expiry.
    assert await start_read(api, cache) == {"a": 2}


@pytest.mark.parametrize("first", [None, ApiError(500, "Broken", "broken")])
async def test_a_failed_read_or_a_missing_object_is_read_again(first):
    api = SlowServer(first, {"a": 2})
    api.answering.set()
    cache = shared(api)
    await asyncio.gather(start_read(api, cache), return_exceptions=True)
    assert await start_read(api, cache) == {"a": 2}


async def test_a_cancelled_caller_does_not_cancel_the_read_of_others():
    api = SlowServer({"a": 1})
    cache = shared(api)
    cancelled, other = start_read(api, cache), start_read(api, cache)
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.sleep(0)
    api.answering.set()
    assert await other == {"a": 1}
