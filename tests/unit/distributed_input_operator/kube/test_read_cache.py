"""Reads that several ask for at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from distributed_input_operator.kube import read_cache as recent
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import INPUT, Kind
from distributed_input_operator.kube.read_cache import Recent


class Slow:
    """Answers, in order, when `answering` is set; counts."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.answering = asyncio.Event()
        self.asked = 0

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        self.asked += 1
        answer = self._answers.pop(0)
        await self.answering.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


def asks(api: Slow, known: Recent) -> Any:
    return asyncio.create_task(known.get(INPUT, "ml", "train"))


def test_who_asks_at_once_shares_one_read():
    async def scenario() -> None:
        api = Slow({"a": 1})
        known = Recent(api)
        first, second = asks(api, known), asks(api, known)
        await asyncio.sleep(0)
        api.answering.set()
        assert await first == await second == {"a": 1}
        assert await asks(api, known) == {"a": 1}
        assert api.asked == 1

    asyncio.run(scenario())


def test_a_read_is_of_use_for_a_moment_only(monkeypatch):
    monkeypatch.setattr(recent, "SECONDS", 0.0)

    async def scenario() -> None:
        api = Slow({"a": 1}, {"a": 2})
        api.answering.set()
        known = Recent(api)
        assert await asks(api, known) == {"a": 1}
        await asyncio.sleep(0.001)  # the loop runs what is due
        assert await asks(api, known) == {"a": 2}

    asyncio.run(scenario())


@pytest.mark.parametrize("first", [None, ApiError(500, "Broken", "broken")])
def test_what_was_not_there_is_asked_anew(first):
    async def scenario() -> None:
        api = Slow(first, {"a": 2})
        api.answering.set()
        known = Recent(api)
        await asyncio.gather(asks(api, known), return_exceptions=True)
        assert await asks(api, known) == {"a": 2}

    asyncio.run(scenario())


def test_who_gives_up_does_not_take_it_from_the_others():
    async def scenario() -> None:
        api = Slow({"a": 1})
        known = Recent(api)
        hasty, patient = asks(api, known), asks(api, known)
        await asyncio.sleep(0)
        hasty.cancel()
        await asyncio.sleep(0)
        api.answering.set()
        assert await patient == {"a": 1}

    asyncio.run(scenario())
