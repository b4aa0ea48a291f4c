"""The watches start only once they are allowed, and the log says what is missing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from distributed_input_operator.kube import preconditions
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import INPUT, POLICY


class Server:
    """An API server that denies some (resource, verb) pairs, each for a number of reviews."""

    def __init__(self, denied: dict[tuple[str, str], int], installed: tuple[str, ...] = ()) -> None:
        self.denied = denied
        self._installed = installed or (INPUT.plural, POLICY.plural)

    async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
        if method == "GET":
            return {"resources": [{"name": one} for one in self._installed]}
        attributes = body["spec"]["resourceAttributes"]
        right = (attributes["resource"], attributes["verb"])
        left = self.denied.get(right, 0)
        self.denied[right] = left - 1
        return {"status": {"allowed": left <= 0}}


def waited(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preconditions, "_RETRY_SECONDS", 0.0)
    asyncio.run(asyncio.wait_for(preconditions.wait_until_met(server, [None]), 10))


def test_a_missing_right_to_watch_blocks_until_it_is_granted(monkeypatch, caplog):
    server = Server({("pods", "watch"): 2})
    waited(server, monkeypatch)
    text = "the operator's role lacks 'watch' on pods in all namespaces"
    assert [text in one.message for one in caplog.records if "waiting" in one.message] == [True] * 2


def test_a_missing_right_to_write_is_logged_and_does_not_block(monkeypatch, caplog):
    waited(Server({("secrets", "create"): 99}), monkeypatch)
    (record,) = caplog.records
    assert "lacks 'create' on secrets" in record.message


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (Server({("inputpolicies", "watch"): 9}), "no permission to watch inputpolicies"),
        (Server({}, (INPUT.plural,)), "InputPolicy is not installed"),
    ],
)
def test_a_policy_that_cannot_be_watched_turns_budgets_off(server, text, caplog):
    caplog.set_level(logging.INFO)
    api: Any = server
    assert not asyncio.run(preconditions.can_watch_policy(api, required=False))
    assert text in caplog.text


def test_an_operator_for_all_namespaces_waits_for_the_right_to_read_the_policy(monkeypatch, caplog):
    """Otherwise it would ignore limits that exist."""
    monkeypatch.setattr(preconditions, "_RETRY_SECONDS", 0.0)
    api: Any = Server({("inputpolicies", "watch"): 3})
    assert asyncio.run(preconditions.can_watch_policy(api, required=True))
    waits = [one for one in caplog.records if "no permission to watch inputpolicies" in one.message]
    assert len(waits) == 3


def test_a_busy_server_delays_the_start_by_single_requests_only(monkeypatch, caplog):
    """Each of the many reviews fails once. All of them together would never succeed."""

    class Busy(Server):
        async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
            request = (method, str(body or path))
            if self.denied.setdefault(request, 1):
                self.denied[request] = 0
                raise ApiError(429, "TooManyRequests", "too many requests")
            return await super().request(method, path, body=body)

    monkeypatch.setattr(preconditions, "_PAUSE_SECONDS", 0.0)
    waited(Busy({}), monkeypatch)
    assert not caplog.records


def test_an_unreachable_server_is_retried(monkeypatch):
    class Unreachable(Server):
        async def request(self, method: str, path: str, *, body: Any = None) -> dict[str, Any]:
            if self.denied.get(("first", "requests"), 0):
                self.denied["first", "requests"] -= 1
                raise ApiError(0, "Unreachable", "no response")
            return await super().request(method, path, body=body)

    monkeypatch.setattr(preconditions, "_PAUSE_SECONDS", 0.0)
    waited(Unreachable({("first", "requests"): 500}), monkeypatch)
