"""A dispatcher that does not answer is asked ever more rarely; another in its place, at once."""

from __future__ import annotations

import asyncio

from distributed_input_operator.controller.dispatchers import Dispatchers

KEY = ("team", "digits")


class Deaf:
    """Hangs up on whoever calls, and counts the calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def hear(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        writer.close()
        await writer.wait_closed()


def times_of_calls(until: float, moves_at: float = 9e9) -> list[float]:
    """When a deaf dispatcher is called, of a look each 10 s; at `moves_at` it gets another port."""

    async def story() -> list[float]:
        now, heard, deaf = 0.0, [], Deaf()
        known = Dispatchers(lambda: now)
        first = await asyncio.start_server(deaf.hear, "127.0.0.1", 0)
        second = await asyncio.start_server(deaf.hear, "127.0.0.1", 0)
        async with first, second:
            while now <= until:
                host, port = (second if now >= moves_at else first).sockets[0].getsockname()
                before = deaf.calls
                assert await known.ask(KEY, "u-1", f"{host}:{port}", "token") is None
                heard += [now] * (deaf.calls > before)
                now += 10
        return heard

    return asyncio.run(story())


def test_who_does_not_answer_is_asked_ever_more_rarely():
    assert times_of_calls(until=1060) == [0, 30, 90, 210, 450, 750, 1050]


def test_another_pod_is_asked_at_once():
    assert times_of_calls(until=150, moves_at=110) == [0, 30, 90, 110, 140]
