"""kopf's lists are complete where they end, and its session has the operator's credentials."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import INPUT, NAMESPACE, POLICY
from distributed_input_operator.kube.reflector import Mirror
from distributed_input_operator.kube.store import Store
from distributed_input_operator.kube.watch import watch

ROOT = "/clusters/one"
"""The path of the API server, which a proxy for several clusters has."""


class Server:
    """An API server behind a proxy. It serves the custom kinds in two pages, and no events."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.inputs = ["a", "b", "c"]
        self.expired = 0
        """Number of second pages that are expired. Meanwhile, the first input is deleted."""
        self.watches: asyncio.Queue[web.StreamResponse] = asyncio.Queue()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        assert request.headers["Authorization"] == "Bearer secret"
        path, plural = request.path.removeprefix(ROOT), request.path.rpartition("/")[2]
        if path == "/apis":
            return web.json_response({"groups": [group()]})
        if path.endswith(f"{INPUT.group}/{INPUT.version}"):
            return web.json_response({"resources": [resource(INPUT), resource(POLICY)]})
        if path in ("/api", "/api/v1"):
            return web.json_response({"versions": ["v1"], "resources": [resource(NAMESPACE)]})
        if "watch" in request.query:
            return await self._watch(request, plural)
        return self._page(request.query.get("continue"), plural)

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        self.requests[f"watch {plural}"] += 1
        response = web.StreamResponse()
        await response.prepare(request)
        if plural == INPUT.plural:
            await self.watches.put(response)
        await asyncio.sleep(3600)
        return response

    def _page(self, token: str | None, plural: str) -> web.Response:
        self.requests[f"list {plural} {token or ''}".strip()] += 1
        if token and self.expired:
            self.expired -= 1
            self.inputs = self.inputs[1:]
            body = {"kind": "Status", "code": 410, "message": "the token is too old"}
            return web.json_response(body, status=410)
        inputs = self.inputs if plural == INPUT.plural else []
        meta = {"resourceVersion": "50"}
        if len(inputs) > 2:
            meta |= {} if token else {"continue": "second"}
            inputs = inputs[2:] if token else inputs[:2]
        items = [stored(one) for one in inputs]
        return web.json_response({"kind": "List", "metadata": meta, "items": items})


def group() -> Json:
    version = {"groupVersion": f"{INPUT.group}/{INPUT.version}", "version": INPUT.version}
    return {"name": INPUT.group, "versions": [version], "preferredVersion": version}


def resource(kind: Any) -> Json:
    return {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "kind": kind.kind,
        "namespaced": not kind.cluster_scoped,
        "verbs": list(kind.verbs),
    }


def stored(name: str, version: int = 9) -> Json:
    meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {}}


def line(kind: str, obj: Json) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def run(body: Any, server: Server) -> Store:
    """Watch a server. Call `body` with the store when the custom kinds are listed."""

    async def story() -> Store:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", server.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        settings: Any = Configuration(host=f"http://127.0.0.1:{runner.addresses[0][1]}{ROOT}")
        settings.api_key = {"BearerToken": "Bearer secret"}
        store = Store()
        mirrors = [Mirror(store, kind, None, lambda *_: None) for kind in (INPUT, POLICY)]
        async with asyncio.timeout(50), ApiClient(settings) as client:
            watching = asyncio.create_task(watch(Api(client), mirrors, ()))
            for one in mirrors:
                await one.listed.wait()
            await body(store)
            watching.cancel()
            await asyncio.wait([watching])
        await runner.cleanup()
        return store

    return asyncio.run(story())


def names(store: Store) -> list[str]:
    return sorted(name for _, name in store.known())


async def until(store: Store, expected: list[str]) -> None:
    while names(store) != expected:
        await asyncio.sleep(0.01)


def test_all_pages_are_in_the_store_when_a_list_ends_and_each_kind_is_listed_once(monkeypatch):
    server, put, puts = Server(), Mirror.put, Counter[str]()

    def count(mirror: Mirror, item: Json) -> None:
        puts[item["metadata"]["name"]] += 1
        put(mirror, item)

    monkeypatch.setattr(Mirror, "put", count)

    async def body(store: Store) -> None:
        assert names(store) == ["a", "b", "c"]
        events = await server.watches.get()
        await events.write(line("ADDED", stored("d", 51)) + line("DELETED", stored("a", 52)))
        await until(store, ["b", "c", "d"])

    run(body, server)
    assert puts == Counter("abcd"), "kopf's own events of a list are not needed"
    lists = {one: count for one, count in server.requests.items() if one.startswith("list")}
    plural = INPUT.plural
    assert lists == {f"list {plural}": 1, f"list {plural} second": 1, f"list {POLICY.plural}": 1}


def test_a_list_without_objects_drops_all():
    """kopf reports no event of such a list."""
    server = Server()

    async def body(store: Store) -> None:
        events = await server.watches.get()
        server.inputs = []
        await events.write(line("ERROR", {"code": 410, "message": "too old"}))
        await until(store, [])

    run(body, server)


def test_a_page_that_is_expired_begins_the_list_again():
    """The operator would end, because kopf does."""
    server = Server()
    server.expired = 1

    async def body(store: Store) -> None:
        assert names(store) == ["b", "c"]

    run(body, server)
    assert server.requests[f"list {INPUT.plural}"] == 2


def test_an_event_that_kopf_has_kept_until_a_later_list_revives_nothing():
    store = Store()
    mirror = Mirror(store, INPUT, None, lambda *_: None)
    page = {"metadata": {"resourceVersion": "50"}, "items": [stored("a")]}
    mirror.add_page(page)
    mirror.add_page({"metadata": {"resourceVersion": "60"}, "items": []})
    mirror.put(stored("a", 55))
    assert names(store) == []
