"""Responses to ConversionReviews."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from distributed_input_operator.webhook import conversion
from distributed_input_operator.webhook.conversion import Converter, respond

ALPHA, BETA = "distributed-input.dev/v1alpha1", "distributed-input.dev/v1beta1"


def resource(name: str, version: str = ALPHA, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "DistributedInput", "metadata": {"name": name}} | {
        "spec": spec
    }


def test_all_objects_are_converted_in_their_order():
    request = {
        "uid": "7",
        "desiredAPIVersion": BETA,
        "objects": [resource("a", order="any"), resource("b", BETA)],
    }
    response = asyncio.run(respond(request))
    assert response["uid"] == "7"
    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"] == [resource("a", BETA, order="Any"), resource("b", BETA)]


def test_an_unknown_version_is_a_failure_with_its_cause():
    request = {"uid": "7", "desiredAPIVersion": f"{BETA}x", "objects": [resource("a")]}
    response = asyncio.run(respond(request))
    assert response["result"]["status"] == "Failure"
    assert "v1beta1x" in response["result"]["message"]
    assert response["convertedObjects"] == []


def test_requests_above_the_limit_wait_and_then_fail(monkeypatch):
    """Their bodies are not in memory, and other requests get a response."""
    monkeypatch.setattr(conversion, "DEADLINE_SECONDS", 0.2)
    running, most = 0, 0

    async def endless(_request: dict[str, Any]) -> dict[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.Event().wait()
        finally:
            running -= 1
        raise AssertionError("unreachable")

    monkeypatch.setattr(conversion, "respond", endless)

    async def scenario() -> list[int]:
        app = web.Application()
        app.add_routes([web.post("/convert", Converter().review)])
        async with TestClient(TestServer(app)) as client:
            posts = [client.post("/convert", json={"request": {}}) for _ in range(9)]
            return [one.status for one in await asyncio.gather(*posts)]

    assert asyncio.run(scenario()) == [503] * 9
    assert most == conversion.MAX_CONCURRENT
