"""Responses to ConversionReviews."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
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


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RecursionError(), "nested too deeply"),
        (ValueError("it is odd"), "it is odd"),
        (AttributeError("no list"), "no list"),
    ],
)
def test_an_object_that_cannot_be_converted_is_named(monkeypatch, error, cause):
    def broken(found: dict[str, Any], version: str) -> dict[str, Any]:
        if found["metadata"]["name"] == "b":
            raise error
        return found

    monkeypatch.setattr(conversion, "convert", broken)
    second = resource("b")
    second["metadata"]["namespace"] = "team"
    request = {"uid": "7", "desiredAPIVersion": BETA, "objects": [resource("a"), second]}
    response = asyncio.run(respond(request))
    assert response["result"] == {"status": "Failure", "message": f"team/b: {cause}"}
    assert response["uid"] == "7"


def post(body: Any) -> tuple[int, str]:
    async def scenario() -> tuple[int, str]:
        app = web.Application()
        app.add_routes([web.post("/convert", Converter().review)])
        async with TestClient(TestServer(app)) as client:
            response = await client.post("/convert", data=body)
            return response.status, await response.text()

    return asyncio.run(scenario())


def review_of(*specs: str) -> str:
    objects = [
        f'{{"apiVersion":"{ALPHA}","metadata":{{"name":"x{place}"}},"spec":{spec}}}'
        for place, spec in enumerate(specs)
    ]
    request = f'{{"uid":"7","desiredAPIVersion":"{BETA}","objects":[{",".join(objects)}]}}'
    return f'{{"request":{request}}}'


def test_a_response_with_nan_is_a_failure_with_the_name():
    status, text = post(review_of('{"seed":1}', '{"seed":NaN}'))
    response = json.loads(text)["response"]
    assert status == 200
    assert response["result"]["status"] == "Failure"
    assert response["result"]["message"].startswith("x1: ")


def test_deep_objects_give_a_response_with_the_cause():
    deep = '{"dataset":{"entryPoint":"a:b","args":%s}}'
    status, text = post(review_of(deep % ('{"a":' * 500 + "1" + "}" * 500)))
    assert (status, json.loads(text)["response"]["result"]) == (200, {"status": "Success"})
    status, text = post(review_of(deep % ('{"a":' * 5_000 + "1" + "}" * 5_000)))
    assert (status, text) == (400, "an object of the request is nested too deeply")


def test_an_annotation_with_nan_is_ignored():
    row = '[{\\"path\\":[\\"status\\",\\"x\\"],\\"value\\":NaN}]'
    body = review_of('{"seed":1}').replace(
        '{"name":"x0"}',
        f'{{"name":"x0","annotations":{{"distributed-input.dev/v1beta1-fields":"{row}"}}}}',
    )
    status, text = post(body)
    assert status == 200
    assert "NaN" not in text
    assert json.loads(text)["response"]["result"] == {"status": "Success"}


@pytest.mark.parametrize("found", ["text", {"metadata": 3}, {}])
def test_an_object_without_a_name_is_a_failure(found):
    request = {"uid": "u", "desiredAPIVersion": "none/v1", "objects": [found]}
    made = asyncio.run(conversion.respond(request))
    assert made["result"]["status"] == "Failure"
    assert made["result"]["message"].startswith("?: ")
