"""Requests to an API server that does not respond as it should."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from distributed_input_operator.kube import api
from distributed_input_operator.kube.api import Api, ApiError


def refused(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> ApiError:
    """Return the error of a request whose server sends `answer` and then nothing more."""
    monkeypatch.setattr(api, "TIMEOUT_SECONDS", 0.3)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await reader.read()  # until the client closes the connection
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
def test_a_server_that_hangs_counts_as_unreachable(answer, monkeypatch):
    error = refused(answer, monkeypatch)
    assert (error.status, error.reason, error.retryable) == (0, "Unreachable", True)
    assert str(error) == "GET /version: no response: TimeoutError"


def test_an_error_without_json_is_reported_with_its_text(monkeypatch):
    text = b"failed to create typed patch object (team/digits-worker; apps/v1): " + b"x" * 200
    head = f"HTTP/1.1 500 Oops\r\nContent-Length: {len(text) + 9}\r\n\r\n".encode()
    error = refused(head + text + b" .tooMany", monkeypatch)
    assert error.status == 500
    assert str(error).endswith(".tooMany")
    assert not error.retryable


def test_concurrent_requests_are_limited_and_waiting_does_not_count_for_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "TIMEOUT_SECONDS", 0.4)
    running, most = 0, 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.1)
            running -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async def call() -> None:
        server = await asyncio.start_server(slow, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        settings: Any = Configuration(host=f"http://{host}:{port}")
        async with server, ApiClient(settings) as client:
            one = Api(client, max_concurrent=2)
            await asyncio.gather(*(one.request("GET", "/version") for _ in range(16)))

    asyncio.run(call())  # 0.8 s in total, twice the deadline of each request
    assert most == 2
