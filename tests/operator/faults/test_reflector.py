"""The store has what a real API server has, whatever happens to lists and watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from distributed_input_operator.kube import api, reflector
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import BY_NAME, CONFIG_MAP, POLICY
from distributed_input_operator.kube.reflector import Mirror, reflect
from distributed_input_operator.kube.store import Store
from testing.operator.cluster import Cluster
from testing.operator.processes import eventually, run_operator
from testing.operator.proxy import Proxy

LABEL = "distributed-input.dev/input"
Body = Callable[["Reflected"], Awaitable[None]]


@pytest.fixture
def proxy(control_plane, tmp_path) -> Iterator[Proxy]:
    created = Proxy(control_plane.kubeconfig, tmp_path)
    yield created
    created.close()


@pytest.fixture(autouse=True)
def objects(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """List two objects in each page. Delete the objects of each test."""
    monkeypatch.setattr(api, "_PAGE", 2)
    monkeypatch.setattr(reflector, "_pause", lambda failed: 0.05 if failed else 0.0)
    yield
    for name in existing(cluster):
        cluster.delete("ConfigMap", name)


def existing(cluster: Cluster) -> dict[str, str]:
    """Return the versions of the ConfigMaps with the watched label, by name."""
    path = CONFIG_MAP.path(cluster.namespace)
    items = cluster.call("GET", path, labelSelector=LABEL)["items"]
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in items}


def create(cluster: Cluster, *names: str) -> None:
    for name in names:
        meta = {"name": name, "labels": {LABEL: "digits"}}
        cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})


class CountingApi(Api):
    """Counts lists and watches. It fails as the test sets."""

    lists = 0
    watched: list[str]
    expired_pages = 0

    async def request(self, method: str, path: str, **more: Any) -> Any:
        if method == "GET" and "limit" in more["query"]:
            if not more["query"].get("continue"):
                self.lists += 1
            elif self.expired_pages:
                self.expired_pages -= 1
                raise ApiError(410, "Expired", "the token is too old")
        return await super().request(method, path, **more)

    async def watch(
        self, kind: Any, namespace: Any, version: str, *more: Any
    ) -> AsyncIterator[Any]:
        self.watched.append(version)
        async for event in super().watch(kind, namespace, version, *more):
            yield event


class Reflected:
    """A mirror of the ConfigMaps of a namespace."""

    def __init__(self, server: CountingApi, cluster: Cluster, **limits: Any) -> None:
        self.server, self.cluster, self.limits = server, cluster, limits
        self.store = Store()
        self.changed: list[str] = []
        self.mirror = Mirror(
            self.store, CONFIG_MAP, cluster.namespace, lambda key, *_: self.changed.append(key[1])
        )

    def found(self) -> dict[str, str]:
        """Return the versions in the store, by name."""
        children = self.store.children((self.cluster.namespace, "digits"))
        return {name: one["metadata"]["resourceVersion"] for (_, name), one in children.items()}

    async def settled(self) -> None:
        """Wait until the store has what the API server has."""
        while self.found() != await asyncio.to_thread(existing, self.cluster):
            await asyncio.sleep(0.05)


def run(proxy: Proxy, cluster: Cluster, body: Body, *, prepare: Any = None, **limits: Any) -> None:
    """Reflect through a proxy. Call `body` when the first list is complete."""

    async def story() -> None:
        settings = Configuration()
        await config.load_kube_config(
            config_file=str(proxy.kubeconfig), client_configuration=settings
        )
        async with ApiClient(settings) as client:
            server = CountingApi(client)
            server.watched = []
            if prepare:
                prepare(server)
            reflected = Reflected(server, cluster)
            reflecting = asyncio.create_task(reflect(server, reflected.mirror, **limits))
            async with asyncio.timeout(60):
                await reflected.mirror.listed.wait()
                await body(reflected)
            assert not reflecting.done()
            reflecting.cancel()
            await asyncio.wait([reflecting])

    asyncio.run(story())


async def begins(proxy: Proxy, count: int) -> None:
    """Wait until so many watches have been requested."""
    while len(proxy.watches) < count:
        await asyncio.sleep(0.02)


async def is_watched(proxy: Proxy) -> None:
    """Wait until a watch delivers events."""
    while not proxy.is_watched:
        await asyncio.sleep(0.02)


def test_all_pages_and_all_later_changes_are_in_the_store(proxy, cluster):
    create(cluster, "a", "b", "c", "d", "e")

    async def body(one: Reflected) -> None:
        assert sorted(one.found()) == ["a", "b", "c", "d", "e"]
        await is_watched(proxy)
        await asyncio.to_thread(cluster.delete, "ConfigMap", "a")
        await asyncio.to_thread(create, cluster, "f")
        await asyncio.to_thread(cluster.patch, "ConfigMap", "b", {"data": {"x": "1"}})
        await one.settled()
        assert sorted(one.found()) == ["b", "c", "d", "e", "f"]
        assert one.server.lists == 1

    run(proxy, cluster, body)


def test_an_empty_list_is_complete(proxy, cluster):
    async def body(one: Reflected) -> None:
        assert one.found() == {}
        await asyncio.to_thread(create, cluster, "a")
        await one.settled()

    run(proxy, cluster, body)


def test_what_is_deleted_while_the_watch_is_disconnected_is_dropped_without_a_list(proxy, cluster):
    create(cluster, "a", "b")

    async def body(one: Reflected) -> None:
        await is_watched(proxy)
        proxy.hold(lambda path: "watch=true" in path, lambda: cluster.delete("ConfigMap", "a"))
        proxy.cut()
        await begins(proxy, 2)
        await one.settled()
        assert sorted(one.found()) == ["b"]
        assert one.server.lists == 1

    run(proxy, cluster, body)


def test_a_version_that_the_server_does_not_have_leads_to_a_list(proxy, cluster):
    """The last object is deleted before the list, so the list is empty."""
    create(cluster, "a")

    async def body(one: Reflected) -> None:
        await is_watched(proxy)
        proxy.hold(lambda path: "limit=2" in path, lambda: cluster.delete("ConfigMap", "a"))
        proxy.expire()
        while one.found():
            await asyncio.sleep(0.02)
        assert one.server.lists == 2
        assert one.changed == ["digits", "digits"]

    run(proxy, cluster, body)


def test_a_list_whose_next_page_is_expired_begins_again(proxy, cluster):
    create(cluster, "a", "b", "c")

    def prepare(server: CountingApi) -> None:
        server.expired_pages = 2

    async def body(one: Reflected) -> None:
        assert sorted(one.found()) == ["a", "b", "c"]
        assert one.server.lists == 3

    run(proxy, cluster, body, prepare=prepare)


def test_the_next_watch_begins_at_the_last_bookmark(proxy, cluster):
    """The API server sends one shortly before a watch ends."""

    async def body(one: Reflected) -> None:
        await asyncio.to_thread(
            cluster.create, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}
        )
        for count in range(2, 6):  # a busy server may send none in one watch
            await begins(proxy, count)
            first, *_, last = map(int, one.server.watched)
            if first < last:
                break
        await asyncio.to_thread(cluster.delete, "ConfigMap", "other")
        assert first < last
        assert one.server.lists == 1

    run(proxy, cluster, body, seconds=4)


def test_a_watch_that_is_silent_is_replaced(proxy, cluster):
    async def body(one: Reflected) -> None:
        await is_watched(proxy)
        proxy.frozen.set()
        await asyncio.to_thread(create, cluster, "unheard")
        await begins(proxy, 2)
        proxy.frozen.clear()
        await one.settled()
        assert one.server.lists == 1

    run(proxy, cluster, body, silent=1.0)


def test_an_object_without_the_label_is_dropped_and_with_the_label_is_back(proxy, cluster):
    create(cluster, "a")

    async def body(one: Reflected) -> None:
        await is_watched(proxy)
        for value in (None, "digits", None, "digits"):
            labels = {"metadata": {"labels": {LABEL: value}}}
            await asyncio.to_thread(cluster.patch, "ConfigMap", "a", labels)
            await one.settled()
            assert bool(one.found()) is bool(value)

    run(proxy, cluster, body)


def test_lost_permission_for_a_kind_delays_its_changes_and_loses_none(proxy, cluster):
    create(cluster, "a", "b")

    async def body(one: Reflected) -> None:
        await is_watched(proxy)
        proxy.refuse(lambda path: "configmaps" in path, 403)
        proxy.cut()
        await asyncio.to_thread(cluster.delete, "ConfigMap", "a")
        await begins(proxy, 4)
        assert sorted(one.found()) == ["a", "b"]
        proxy.refuse(lambda _: False)
        await one.settled()
        assert sorted(one.found()) == ["b"]

    run(proxy, cluster, body)


def test_each_kind_is_listed_once_at_the_start_of_an_operator(cluster, proxy, tmp_path):
    flags = ("--namespace", cluster.namespace)
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path, *flags):
        kinds = {one for one in BY_NAME.values() if "watch" in one.verbs} | {POLICY}
        eventually(lambda: len(set(proxy.watches)) == len(kinds))
        lists = [one for one in proxy.lists if "/secrets" not in one]
        assert sorted(one.rpartition("/")[2] for one in lists) == sorted(
            one.plural for one in kinds
        )
