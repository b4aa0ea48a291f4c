"""Requests to an API server that does not respond as it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from distributed_input_operator.kube import api
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import INPUT
from testing.listeners import Handler, listening


@asynccontextmanager
async def client_of(handler: Handler, **options: Any) -> AsyncIterator[Api]:
    """Yield a client of a server whose connections are handled like this."""
    async with listening(handler) as address:
        settings: Any = Configuration(host=f"http://{address}")
        async with asyncio.timeout(20), ApiClient(settings) as client:
            yield Api(client, **options)


def refused(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> ApiError:
    """Return the error of a request whose server sends `answer` and then nothing more."""
    monkeypatch.setattr(api, "TIMEOUT_SECONDS", 0.3)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await reader.read()  # until the client closes the connection

    async def call() -> None:
        async with client_of(silent) as client:
            await client.request("GET", "/version")

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


@pytest.mark.parametrize("text", [b"<html>", b"[]"])
def test_a_success_without_an_object_is_the_page_of_a_proxy(text, monkeypatch):
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode()
    error = refused(head + text, monkeypatch)
    assert (error.status, error.retryable) == (0, True)
    assert str(error) == f"GET /version: no JSON: {text.decode()!r}"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [(["/version"], 2), (["/version", "/api/v1/namespaces/team"], 3)],
)
async def test_concurrent_requests_are_limited_and_waiting_does_not_count_for_the_deadline(
    monkeypatch: pytest.MonkeyPatch, paths: list[str], expected: int
) -> None:
    """One namespace has half of them, and one of them is free while two have requests."""
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

    async with client_of(slow, max_concurrent=4) as client:
        await asyncio.gather(*(client.request("GET", path) for path in paths * 16))
    assert most == expected


@pytest.mark.parametrize(
    ("path", "namespace"),
    [
        ("/apis/apps/v1/namespaces/team/deployments/a", "team"),
        ("/api/v1/namespaces/team", "team"),
        ("/apis/apps/v1/deployments", ""),
    ],
)
def test_requests_take_turns_by_the_namespace_in_their_path(path, namespace):
    assert api._namespace(path) == namespace


@pytest.mark.parametrize(
    ("answer", "events", "status"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"type": "ADDED"}\n{"type": "DELETED"}\n', 2, None),
        (b'HTTP/1.1 200 OK\r\n\r\n{"type": "ADDED"}\n{"type": "DEL', 1, 0),
        (b"HTTP/1.1 410 Gone\r\nContent-Length: 2\r\n\r\n{}", 0, 410),
        (b"", 0, 0),
        (b'HTTP/1.1 200 OK\r\n\r\n{"type": "ADDED"}\n' + b"x" * (5 << 20) + b"\n", 1, 0),
        (b'HTTP/1.1 200 OK\r\n\r\n{"type": "ERROR", "object": {"code": 410}}\n', 0, 410),
    ],
    ids=["complete", "half a line", "expired", "nothing", "a long line", "an expired event"],
)
def test_a_watch_yields_events_until_it_ends(answer, events, status):
    seen: list[Any] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert "resourceVersion=7&timeoutSeconds=60&allowWatchBookmarks=true " in request
        writer.write(answer)

    async def follow() -> None:
        async with client_of(once) as client:
            async for event in client.watch(INPUT, "team", "7", 60, 20.0):
                seen.append(event)

    if status is None:
        asyncio.run(follow())
    else:
        with pytest.raises(ApiError) as caught:
            asyncio.run(follow())
        assert caught.value.status == status
    assert len(seen) == events


async def test_a_silent_watch_ends_with_an_error():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"type": "ADDED"}\n')
        await reader.read()  # until the client closes the connection

    async with client_of(silent) as client:
        with pytest.raises(ApiError) as caught:
            async for _ in client.watch(INPUT, "team", "7", 3600, 0.1):
                pass
    assert (caught.value.status, caught.value.reason) == (0, "Unreachable")
