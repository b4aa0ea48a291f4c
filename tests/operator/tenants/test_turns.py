"""A tenant who changes its inputs in a loop: others get their turn, and the operator stops."""

from __future__ import annotations

import asyncio
import gc
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.kinds import LEASE
from testing.operator.cluster import Cluster
from testing.operator.processes import SECONDS, Operator, eventually, manifest, template
from testing.operator.proxy import Proxy
from testing.tenants import attacks

INPUTS = 60
"""Of the attacker: in the order of events, they would fill all places."""


@pytest.fixture
def loud(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Create the namespace of the attacker."""
    name = f"loud-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(attacks, "LOUD", name)
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield Cluster(cluster._api, name)
    cluster.call("DELETE", f"/api/v1/namespaces/{name}")


# aiohttp does not close connections of the attacker whose requests are cancelled.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(600)
def test_an_attacker_delays_no_change_of_others_and_not_the_stop(
    cluster: Cluster, loud: Cluster, control_plane: Any, tmp_path: Any
) -> None:
    cluster.create(manifest("victim", workers={"replicas": 0}))
    flags = ("--namespace", cluster.namespace, "--namespace", loud.namespace)
    operator = Operator(control_plane.kubeconfig, cluster.namespace, tmp_path, *flags)

    def change(number: int) -> None:
        env = [{"name": "NUMBER", "value": str(number)}]
        cluster.patch("DistributedInput", "victim", {"spec": {"workers": template(env=env)}})

        def is_applied() -> bool:
            found = cluster.get("Deployment", "victim-worker") or {"spec": {}}
            pods = found["spec"].get("template", {"spec": {"containers": [{}]}})
            return env[0] in pods["spec"]["containers"][0].get("env", ())

        eventually(is_applied)

    async def body() -> None:
        await asyncio.to_thread(operator.wait_until_leading)
        await config.load_kube_config(str(control_plane.kubeconfig))
        async with ApiClient() as client, attacks.edits(Api(client), INPUTS, {}) as attempts:
            for number in range(5):
                await asyncio.to_thread(change, number)
            assert attempts.accepted > INPUTS
            # Requests of many inputs wait for their turn now.
            assert await asyncio.to_thread(operator.stop) == 0

    try:
        asyncio.run(body())
    finally:
        if operator.process.poll() is None:
            operator.kill()
    cluster.delete("DistributedInput", "victim")
    gc.collect()  # these warnings appear here, and not in the next test


def test_a_stop_while_a_request_waits_releases_the_lease(
    cluster: Cluster, control_plane: Any, tmp_path: Any
) -> None:
    """After 5 s, kopf cancels the request, and so the reconciliation that waits for it."""
    waits, release = threading.Event(), threading.Event()

    def meanwhile() -> None:
        waits.set()
        release.wait(3 * SECONDS)

    proxy = Proxy(control_plane.kubeconfig, tmp_path)
    operator = Operator(proxy.kubeconfig, cluster.namespace, tmp_path)
    try:
        operator.wait_until_leading()
        proxy.hold(lambda path: "/deployments/held-" in path, meanwhile, method="PATCH")
        cluster.create(manifest("held"))
        assert waits.wait(SECONDS)
        assert operator.stop() == 0
    finally:
        release.set()
        if operator.process.poll() is None:
            operator.kill()
        proxy.close()
    path = LEASE.path(cluster.namespace, "distributed-input-operator")
    assert not cluster.call("GET", path)["spec"]["holderIdentity"]
    cluster.delete("DistributedInput", "held")
