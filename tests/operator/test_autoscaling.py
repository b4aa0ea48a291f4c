"""Autoscaling from end to end: a real dispatcher, told of trainers, and a real API server."""

from __future__ import annotations

import time

import pytest

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.dispatcher import dispatcher, token_of
from testing.operator.policies import apply
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import free_port

NAME = "scaled"
_LONG = 150.0
"""Rates are over 30 s."""


@pytest.fixture
def spent(cluster):
    """The name of an input that takes all that there is."""
    apply(cluster, {"name": "all", "namespaces": [cluster.namespace], "limits": {"workers": 6}})
    yield "hog"
    cluster.delete("DistributedInput", "hog")
    cluster.call("DELETE", POLICY.path(None, "cluster"))


@pytest.mark.timeout(600)
def test_workers_follow_what_the_trainers_would_take(cluster, operator, tmp_path):
    port = free_port()
    scaling = {"minReplicas": 1, "maxReplicas": 6, "stabilizationWindowSeconds": 5}
    workers = {"autoscaling": scaling}
    cluster.create(manifest(NAME, workers=workers, dispatcher={"port": port}))
    token = token_of(cluster, NAME)

    def replicas() -> int:
        cluster.play_kubelet(NAME, "dispatcher", "127.0.0.1")
        cluster.play_kubelet(NAME)
        return cluster.get("Deployment", f"{NAME}-worker")["spec"]["replicas"]

    with dispatcher(port, token, tmp_path) as told:
        # 100 rows a second in a quarter of the time are 400; a worker makes 100 while busy.
        eventually(lambda: replicas() == 4, _LONG)
        assert operator.metric("distributed_input_workers_recommended") == 4

        def live():
            return cluster.get("DistributedInput", NAME)["status"].get("live", {})

        eventually(lambda: live().get("stall") == "75%" and live(), _LONG)
        assert live()["rowsPerSecond"] == pytest.approx(100, rel=0.2)
        assert (live()["consumers"], live()["epoch"]) == (1, 2)
        before, started = (
            operator.metric("distributed_input_operator_writes_total"),
            time.monotonic(),
        )
        told.waits = 0.0
        # All that one worker can make: another stays, for measurements are not exact.
        eventually(lambda: replicas() == 2, _LONG)
        seconds, writes = time.monotonic() - started, operator.writes() - before
        print(f"{writes:g} writes in {seconds:.0f} s of changing rates and two workers less")
        marked = [p["metadata"].get("annotations", {}) for p in cluster.list("Pod")]
        costs = [one.get("controller.kubernetes.io/pod-deletion-cost") for one in marked]
        assert costs.count("-1000") <= 3
    cluster.delete("DistributedInput", NAME)


@pytest.mark.timeout(600)
def test_an_idle_input_has_no_workers_until_a_trainer_reads(cluster, operator, tmp_path):
    port = free_port()
    name = "idle"
    scaling = {"minReplicas": 2, "maxReplicas": 6, "idleTTLSeconds": 1}
    cluster.create(manifest(name, workers={"autoscaling": scaling}, dispatcher={"port": port}))
    token = token_of(cluster, name)

    def replicas() -> int | None:
        cluster.play_kubelet(name, "dispatcher", "127.0.0.1")
        cluster.play_kubelet(name)
        found = cluster.get("Deployment", f"{name}-worker")
        return found and found["spec"]["replicas"]

    eventually(lambda: replicas() == 2)
    with dispatcher(port, token, tmp_path, reading=False) as told:
        eventually(lambda: replicas() == 0, _LONG)
        eventually(lambda: cluster.condition(name, "Ready")["reason"] == "Idle")
        assert cluster.condition(name, "Ready")["status"] == "True"
        told.begin()
        eventually(lambda: replicas() == 6, _LONG)
    cluster.delete("DistributedInput", name)


@pytest.mark.timeout(600)
def test_who_was_idle_gets_its_least_of_a_spent_budget_from_an_operator_that_began_anew(
    cluster, operator, tmp_path, spent
):
    port = free_port()
    name = "idler"
    scaling = {"minReplicas": 2, "maxReplicas": 6, "idleTTLSeconds": 1}
    cluster.create(manifest(name, workers={"autoscaling": scaling}, dispatcher={"port": port}))
    token = token_of(cluster, name)

    def replicas(of: str = name) -> int | None:
        cluster.play_kubelet(name, "dispatcher", "127.0.0.1")
        cluster.play_kubelet(name)
        found = cluster.get("Deployment", f"{of}-worker")
        return found and found["spec"]["replicas"]

    with dispatcher(port, token, tmp_path, reading=False) as told:
        eventually(lambda: replicas() == 0, _LONG)
        cluster.create(manifest(spent, workers={"replicas": 6}, trainers={"priority": 9}))
        eventually(lambda: replicas(spent) == 6)
        eventually(lambda: cluster.condition(name, "Ready").get("reason") == "Idle", _LONG)
        operator.restart()
        operator.wait_until_leading()
        told.begin()
        eventually(lambda: replicas() == 2, _LONG)
        assert replicas(spent) == 4, "and not before these had left"
        said = eventually(lambda: cluster.condition(name, "ScalingLimited"))
        assert said["message"].startswith("2 of 6 requested workers: budget all is used up")
        assert said["message"].endswith(f"{cluster.namespace}/{spent} has priority 9")
    cluster.delete("DistributedInput", name)
