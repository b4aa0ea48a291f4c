"""Calls to an API server that does not play along."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from distributed_input_operator.kube import api
from distributed_input_operator.kube.api import Api, ApiError


def refused(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> ApiError:
    """What a call to a server comes to that takes a request, sends this, and then nothing more."""
    monkeypatch.setattr(api, "TIMEOUT_SECONDS", 0.3)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await reader.read()  # until the client gives up
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()

    async def call() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        settings: Any = Configuration(host=f"http://{host}:{port}")
        async with server, asyncio.timeout(10):
            try:
                async with ApiClient(settings) as client:
                    await Api(client).request("GET", "/version")
            finally:
                await ended.wait()

    with pytest.raises(ApiError) as caught:
        asyncio.run(call())
    return caught.value


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"],
    ids=["nothing", "half an answer"],
)
def test_a_server_that_hangs_is_no_answer(answer, monkeypatch):
    error = refused(answer, monkeypatch)
    assert (error.status, error.reason, error.retryable) == (0, "Unreachable", True)
    assert str(error) == "GET /version: no answer: TimeoutError"


def test_an_error_that_is_no_json_is_told_as_far_as_it_matters(monkeypatch):
    words = b"failed to create typed patch object (team/digits-worker; apps/v1): " + b"x" * 200
    head = f"HTTP/1.1 500 Oops\r\nContent-Length: {len(words) + 9}\r\n\r\n".encode()
    error = refused(head + words + b" .tooMany", monkeypatch)
    assert error.status == 500
    assert str(error).endswith(".tooMany")
    assert not error.retryable


def test_so_many_requests_are_on_their_way_and_those_that_wait_lose_no_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "TIMEOUT_SECONDS", 0.4)
    there, most = 0, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal there, most
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            there += 1
            most = max(most, there)
            await asyncio.sleep(0.1)
            there -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def call() -> None:
        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        settings: Any = Configuration(host=f"http://{host}:{port}")
        async with server, ApiClient(settings) as client:
            one = Api(client, at_once=2)
            await asyncio.gather(*(one.request("GET", "/version") for _ in range(16)))

    asyncio.run(call())  # 0.8 s in all, twice what each may take
    assert most == 2
