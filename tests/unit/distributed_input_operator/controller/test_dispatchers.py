"""Requests to dispatchers that are silent, slow, or send an answer that cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from distributed_input.api.proto.dispatcher_pb2 import ConsumerInfo, StatusResponse, WorkerInfo
from distributed_input_operator.controller.channels import DispatcherAccess
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.status_answer import MAX_BYTES
from testing.listeners import listening

KEY = ("team", "digits")


def TOKEN() -> DispatcherAccess:  # noqa: N802
    return DispatcherAccess(token="token")


async def close(*_: object) -> None:
    """Close a connection: the dispatcher is silent."""


def times_of_calls(until: float, moves_at: float = 9e9) -> list[float]:
    """Return the times of requests to a silent dispatcher, with a reconciliation every 10 s.

    At `moves_at` it gets another port.
    """

    async def story() -> list[float]:
        now, times = 0.0, []
        client = DispatcherClient(lambda: now)

        def access() -> DispatcherAccess:
            times.append(now)
            return TOKEN()

        async with listening(close) as first, listening(close) as second:
            while now <= until:
                address = second if now >= moves_at else first
                assert await client.measure(KEY, "u-1", address, access) is None
                now += 10
        return times

    return asyncio.run(story())


def test_requests_to_a_silent_dispatcher_back_off():
    assert times_of_calls(until=1060) == [0, 30, 90, 210, 450, 750, 1050]


def test_a_replacement_pod_is_asked_at_once():
    assert times_of_calls(until=150, moves_at=110) == [0, 30, 90, 110, 140]


Answer = Callable[[bytes, Any], Any]


@asynccontextmanager
async def dispatchers(*answers: Answer) -> AsyncIterator[list[str]]:
    """Run a server for each answer. Yield their addresses."""
    servers, addresses = [], []
    for answer in answers:
        zipped = grpc.Compression.Gzip if answer is compressed else None
        server = grpc.aio.server(compression=zipped)
        method: Any = grpc.unary_unary_rpc_method_handler(answer)
        handler = grpc.method_handlers_generic_handler(
            "distributed_input.v1.Dispatcher", {"Status": method}
        )
        server.add_generic_rpc_handlers((handler,))
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        servers.append(server)
    try:
        yield addresses
    finally:
        for server in servers:
            await server.stop(0)


def fixed(content: bytes) -> Answer:
    async def answer(_: bytes, context: Any) -> bytes:
        return content

    return answer


def workers(count: int) -> bytes:
    return StatusResponse(
        workers=[WorkerInfo(worker_id=str(i)) for i in range(count)]
    ).SerializeToString()


async def compressed(_: bytes, context: Any) -> bytes:
    return workers(2000)  # The operator would use it if it were not compressed.


async def unauthenticated(_: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "wrong token")
    raise AssertionError("unreachable")


@pytest.mark.parametrize(
    ("answer", "reason", "message"),
    [
        (fixed(workers(100_000)), "StatusUnusable", "more than 10000 workers"),
        (fixed(b"\x1a\x00" * (2 << 20)), "StatusUnusable", "more than 10000 workers"),
        (fixed(bytes(MAX_BYTES + 1)), "StatusUnusable", "more than 4 MiB"),
        (fixed(b"no message"), "StatusUnusable", "not a StatusResponse"),
        (unauthenticated, "TokenRefused", "does not accept the operator's token"),
        # gRPC refuses it (INTERNAL), or returns the compressed bytes, which are no StatusResponse.
        (compressed, "StatusUnusable", "does not use the dispatcher's status"),
    ],
)
async def test_an_answer_that_cannot_be_used_affects_only_its_input(answer, reason, message):
    async with dispatchers(answer, fixed(workers(3))) as addresses:
        client = DispatcherClient()
        bad, good = addresses
        assert await client.measure(("bad", "digits"), "u-1", bad, TOKEN) is None
        measured = await client.measure(("good", "digits"), "u-2", good, TOKEN)
        assert measured is not None
        assert measured.streams == {"": 0}
        assert client.problem(("good", "digits")) is None
        problem = client.problem(("bad", "digits"))
        assert problem is not None
        assert problem.reason == reason
        assert message in problem.message


async def test_the_samples_of_the_largest_namespace_are_dropped_first():
    async with dispatchers(fixed(workers(201)), fixed(workers(200))) as addresses:
        client = DispatcherClient(max_kept=500)
        large, small = addresses
        await client.measure(("small", "one"), "u-1", small, TOKEN)
        for name in ("a", "b"):
            await client.measure(("large", name), f"u-{name}", large, TOKEN)
        dropped = [name for name in ("a", "b") if client.problem(("large", name))]
        assert len(dropped) == 1
        assert client.problem(("small", "one")) is None
        client.forget(("large", "a"))
        client.forget(("large", "b"))
        assert client._kept == 200


async def test_slow_dispatchers_of_one_namespace_do_not_delay_others():

    async def hold(_: bytes, context: Any) -> bytes:
        nonlocal asked
        asked += 1
        await release.wait()
        return b""

    release, asked = asyncio.Event(), 0

    async with dispatchers(hold, fixed(workers(1))) as addresses:
        client = DispatcherClient()
        slow, fast = addresses
        waiting = [
            asyncio.create_task(client.measure(("slow", str(i)), f"u-{i}", slow, TOKEN))
            for i in range(40)
        ]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        done = [one for one in waiting if one.done()]
        assert 0 < len(done) <= 24  # They were not asked.
        assert await client.measure(("fast", "one"), "u", fast, TOKEN) is not None
        release.set()
        await asyncio.gather(*waiting)
        assert asked == 16


@pytest.mark.parametrize(("count", "expected"), [(100, [0, 4, 8, 12]), (2000, [0, 8])])
async def test_large_answers_are_requested_less_often(count, expected):
    times: list[float] = []
    now = 0.0

    async def answer(_: bytes, context: Any) -> bytes:
        times.append(now)
        return workers(count)

    async with dispatchers(answer) as addresses:
        client = DispatcherClient(lambda: now)
        for then in (0.0, 4.0, 8.0, 12.0):
            now = then
            assert await client.measure(KEY, "u-1", addresses[0], TOKEN) is not None
    assert times == expected


async def test_a_dispatcher_answers_one_request_at_a_time():
    """A look and a reconciliation may come together."""
    asked = 0

    async def answer(_: bytes, context: Any) -> bytes:
        nonlocal asked
        asked += 1
        return workers(1)

    async with dispatchers(answer) as addresses:
        client = DispatcherClient()
        first = client.measure(KEY, "u-1", addresses[0], TOKEN)
        found = await asyncio.gather(first, client.measure(KEY, "u-1", addresses[0], TOKEN))
        assert [one is None for one in found] == [False, True]
    assert asked == 1


@pytest.mark.parametrize("trainers", [0, 1])
async def test_only_connections_for_trainers_are_kept(trainers):
    content = StatusResponse(consumers=[ConsumerInfo()] * trainers).SerializeToString()
    async with dispatchers(fixed(content)) as addresses:
        now = 0.0
        client = DispatcherClient(lambda: now)
        for _ in range(2):
            assert await client.measure(KEY, "u-1", addresses[0], TOKEN) is not None
            now += 10
        assert len(client._channels) == trainers
        client.forget(KEY)


async def test_an_answer_for_an_input_that_was_forgotten_meanwhile_is_not_kept():

    async def hold(_: bytes, context: Any) -> bytes:
        asked.set()
        await release.wait()
        return workers(3)

    asked, release = asyncio.Event(), asyncio.Event()

    async with dispatchers(hold) as addresses:
        client = DispatcherClient()
        asking = asyncio.create_task(client.measure(KEY, "u-1", addresses[0], TOKEN))
        await asyncio.wait_for(asked.wait(), 20)
        client.forget(KEY)
        release.set()
        assert await asking is None
        assert client._kept == 0
        assert len(client) == 0


@pytest.mark.parametrize("fails", [True, False])
async def test_what_a_previous_pod_answers_is_not_used(fails):

    first = True

    async def hold(_: bytes, context: Any) -> bytes:
        nonlocal first
        if first:
            first = False
            return workers(1)
        asked.set()
        await release.wait()
        if fails:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "stops")
        return workers(2)

    asked, release = asyncio.Event(), asyncio.Event()

    async with dispatchers(hold, fixed(workers(3))) as addresses:
        client = DispatcherClient()
        old, new = addresses
        await client.measure(KEY, "u-1", old, TOKEN)
        client._known[KEY].sample_at = 0.0
        looking = asyncio.create_task(client.look(KEY))
        await asyncio.wait_for(asked.wait(), 20)
        await client.measure(KEY, "u-1", new, TOKEN)  # It waits for the look.
        release.set()
        measured = await looking
        assert measured is not None
        assert len(measured.streams) == 1
        assert client.problem(KEY) is None
        assert await client.measure(KEY, "u-1", new, TOKEN) is not None
        assert len(client._known[KEY].window.samples[-1].workers) == 3


async def test_the_samples_of_an_input_share_equal_texts():
    now = 0.0
    async with dispatchers(fixed(workers(11))) as addresses:
        client = DispatcherClient(lambda: now)
        for now in (0.0, 10.0):  # noqa: B007 - the clock reads it
            await client.measure(KEY, "u-1", addresses[0], TOKEN)
        first, second = (list(one.workers) for one in client._known[KEY].window.samples)
        assert first[10] == "10"
        assert first[10] is second[10]
