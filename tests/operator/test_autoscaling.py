"""Autoscaling with a real dispatcher, simulated heartbeats and a real API server."""

from __future__ import annotations

import time

import pytest

from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.policies import budget, policy_in_force
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import free_port

NAME = "scaled"
_LONG = 150.0
"""Rates are averages over 30 s, so changes take longer than the default timeout."""


@pytest.fixture
def competitor(cluster):
    """Provide the name of an input that uses the whole budget."""
    with policy_in_force(cluster, budget(cluster, 6)):
        yield "hog"
        cluster.delete("DistributedInput", "hog")


@pytest.mark.timeout(600)
def test_the_number_of_workers_follows_the_trainers_demand(cluster, operator, tmp_path):
    port = free_port()
    scaling = {"minReplicas": 1, "maxReplicas": 6, "stabilizationWindowSeconds": 5}
    workers = {"autoscaling": scaling}
    cluster.create(manifest(NAME, workers=workers, dispatcher={"port": port}))
    token = token_of(cluster, NAME)

    def replicas() -> int:
        cluster.run_pods(NAME)
        return cluster.get("Deployment", f"{NAME}-worker")["spec"]["replicas"]

    with run_dispatcher(port, token, tmp_path) as heartbeats:
        # The trainer reads 100 rows/s in 25% of its time: it could read 400. A worker makes 100.
        eventually(lambda: replicas() == 4, _LONG)
        # It is set after the API server has accepted the number.
        eventually(lambda: operator.metric("distributed_input_workers_recommended") == 4)

        def live():
            return cluster.get("DistributedInput", NAME)["status"].get("trainers", {})

        eventually(lambda: live().get("stall") == "75%" and live(), _LONG)
        assert live()["rowsPerSecond"] == pytest.approx(100, rel=0.2)
        assert live()["reading"] == 1
        before, started = (
            operator.metric("distributed_input_operator_writes_total"),
            time.monotonic(),
        )
        heartbeats.wait_ratio = 0.0
        # One worker is fully used. A second one stays because measurements are not exact.
        eventually(lambda: replicas() == 2, _LONG)
        seconds, writes = time.monotonic() - started, operator.writes() - before
        print(f"{writes:g} writes in {seconds:.0f} s of changing rates and two workers less")
        annotations = [p["metadata"].get("annotations", {}) for p in cluster.list("Pod")]
        costs = [one.get("controller.kubernetes.io/pod-deletion-cost") for one in annotations]
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
        cluster.run_pods(name)
        found = cluster.get("Deployment", f"{name}-worker")
        return found and found["spec"]["replicas"]

    eventually(lambda: replicas() == 2)
    with run_dispatcher(port, token, tmp_path, reading=False) as heartbeats:
        eventually(lambda: replicas() == 0, _LONG)
        eventually(lambda: cluster.condition(name, "Ready")["reason"] == "Idle")
        assert cluster.condition(name, "Ready")["status"] == "True"
        heartbeats.start()
        eventually(lambda: replicas() == 6, _LONG)
    cluster.delete("DistributedInput", name)


@pytest.mark.timeout(600)
def test_an_idle_input_gets_its_minimum_of_a_used_up_budget_from_a_restarted_operator(
    cluster, operator, tmp_path, competitor
):
    port = free_port()
    name = "idler"
    scaling = {"minReplicas": 2, "maxReplicas": 6, "idleTTLSeconds": 1}
    cluster.create(manifest(name, workers={"autoscaling": scaling}, dispatcher={"port": port}))
    token = token_of(cluster, name)

    def replicas(of: str = name) -> int | None:
        cluster.run_pods(name)
        found = cluster.get("Deployment", f"{of}-worker")
        return found and found["spec"]["replicas"]

    with run_dispatcher(port, token, tmp_path, reading=False) as heartbeats:
        eventually(lambda: replicas() == 0, _LONG)
        cluster.create(manifest(competitor, workers={"replicas": 6}, trainers={"priority": 9}))
        eventually(lambda: replicas(competitor) == 6)
        eventually(lambda: cluster.condition(name, "Ready").get("reason") == "Idle", _LONG)
        operator.restart()
        operator.wait_until_leading()
        heartbeats.start()
        eventually(lambda: replicas() == 2, _LONG)
        assert replicas(competitor) == 4, (
            "the idle input got workers before the other one lost them"
        )
        condition = eventually(lambda: cluster.condition(name, "ScalingLimited"))
        assert condition["message"].startswith("2 of 6 requested workers: budget all is used up")
        assert condition["message"].endswith(f"{cluster.namespace}/{competitor} has priority 9")
    cluster.delete("DistributedInput", name)
