"""The labels of namespaces: read once a minute, and unknown if they cannot be read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.namespaces import SECONDS, NamespaceLabels

LABELS = {"team": "vision"}


class Server:
    """An API server with one namespace."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: ApiError | None = None
        self.found: dict[str, Any] | None = {"metadata": {"name": "a", "labels": LABELS}}

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any] | None:
        assert kind.path(namespace, name) == f"/api/v1/namespaces/{name}"
        self.reads += 1
        if self.error:
            raise self.error
        return self.found


def cache(server: Any, clock: Callable[[], float] = time.monotonic) -> NamespaceLabels:
    return NamespaceLabels(server, clock)


def test_labels_are_read_once_a_minute():
    server, now = Server(), [0.0]
    labels = cache(server, lambda: now[0])
    for at, reads in ((0.0, 1), (SECONDS - 1, 1), (SECONDS, 2)):
        now[0] = at
        assert asyncio.run(labels.labels("a")) == LABELS
        assert server.reads == reads


@pytest.mark.parametrize("status", [403, 500])
def test_labels_that_cannot_be_read_are_unknown(status, caplog):
    server = Server()
    server.error = ApiError(status, "Some", "refused")
    assert asyncio.run(cache(server).labels("a")) is None
    assert "cannot read the labels of namespace a" in caplog.text


def test_the_last_labels_stay_while_the_server_does_not_respond():
    server, now = Server(), [0.0]
    labels = cache(server, lambda: now[0])
    asyncio.run(labels.labels("a"))
    now[0] = 2 * SECONDS
    server.error = ApiError(0, "Unreachable", "no response")
    assert asyncio.run(labels.labels("a")) == LABELS
    server.error = ApiError(403, "Forbidden", "no right")
    assert asyncio.run(labels.labels("a")) is None


def test_a_namespace_that_does_not_exist_has_unknown_labels():
    server = Server()
    server.found = None
    assert asyncio.run(cache(server).labels("a")) is None


def test_a_refusal_is_not_repeated_within_a_minute():
    server = Server()
    server.error = ApiError(403, "Forbidden", "no right")
    labels = cache(server, lambda: 0.0)
    assert [asyncio.run(labels.labels("a")) for _ in range(3)] == [None] * 3
    assert server.reads == 1
