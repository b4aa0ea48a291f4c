"""A HorizontalPodAutoscaler scales an input by the operator's recommendation.

The manifest is in docs/scaling.md. The controller-manager, the dispatcher and the operator are
real. The pods and the Prometheus between operator and adapter are simulated.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from distributed_input_operator import metrics
from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.documentation import documented_manifest
from testing.operator.external_metrics import run_adapter
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import free_port

NAME = "digits"  # the name in the manifest
_LONG = 150.0
"""Rates are averages over 30 s, and HorizontalPodAutoscalers sync every few seconds."""


def autoscaler(minimum: int = 1) -> dict[str, Any]:
    """Return the documented autoscaler without the delay of two minutes before it scales down."""
    created = documented_manifest("HorizontalPodAutoscaler")
    created["spec"]["minReplicas"] = minimum
    created["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    return created


@pytest.fixture
def path(cluster):
    """Return the path of the autoscalers."""
    return f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers"


@pytest.fixture(scope="module")
def adapter(cluster, operator, control_plane, tmp_path_factory):
    """Run an adapter that serves the operator's metrics."""

    def value(namespace: str, metric: str, labels: str) -> float | None:
        name = labels.removeprefix("input=")
        prefix = f'{metric}{{input="{name}",namespace="{namespace}"}} '
        for line in operator.get("/metrics")[1].splitlines():
            if line.startswith(prefix):
                return float(line.rpartition(" ")[2])
        return None

    with run_adapter(control_plane, cluster, value, tmp_path_factory.mktemp("adapter")):
        yield


def condition(cluster, path, kind: str) -> dict[str, str]:
    """Return a condition of the autoscaler, or an empty dict if there is none."""
    found = cluster.call("GET", f"{path}/{NAME}").get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


@pytest.mark.timeout(600)
def test_the_autoscaler_scales_an_input_by_the_recommendation(
    cluster, operator, adapter, path, tmp_path
):
    port = free_port()
    cluster.create(manifest(NAME, dispatcher={"port": port}))
    token = token_of(cluster, NAME)

    def replicas() -> tuple[int, int]:
        """Return the replicas of the input and of the workers' Deployment."""
        cluster.run_pods(NAME)
        created = cluster.get("Deployment", f"{NAME}-worker")["spec"]["replicas"]
        return cluster.get("DistributedInput", NAME)["spec"]["workers"]["replicas"], created

    with run_dispatcher(port, token, tmp_path) as heartbeats:
        cluster.call("POST", path, autoscaler())
        # The trainer reads 100 rows/s in 25% of its time: it could read 400. A worker makes 100.
        eventually(lambda: replicas() == (4, 4), _LONG)
        assert condition(cluster, path, "AbleToScale")["status"] == "True"
        assert condition(cluster, path, "ScalingActive")["status"] == "True"
        fields = cluster.get("DistributedInput", NAME)["metadata"]["managedFields"]
        (owner,) = (one["manager"] for one in fields if one.get("subresource") == "scale")
        assert owner == "kube-controller-manager"
        heartbeats.wait_ratio = 0.0
        eventually(lambda: replicas() in ((1, 1), (2, 2)), _LONG)
    cluster.call("DELETE", f"{path}/{NAME}")
    cluster.delete("DistributedInput", NAME)


def test_the_documented_manifests_use_existing_kinds_and_metrics(cluster):
    keda, own = (
        documented_manifest("ScaledObject")["spec"],
        documented_manifest("HorizontalPodAutoscaler")["spec"],
    )
    target = {"apiVersion": "distributed-input.dev/v1beta1", "kind": "DistributedInput"}
    for spec in (keda, own):
        assert spec["scaleTargetRef"] == target | {"name": NAME}
    (trigger,), (metric,) = keda["triggers"], own["metrics"]
    name = metrics.RECOMMENDED.name
    assert metric["external"]["metric"]["name"] == name
    labels = set(re.findall(r"(\w+)=", trigger["metadata"]["query"]))
    assert f"{name}{{" in trigger["metadata"]["query"]
    assert labels == set(metrics.INPUT_LABELS)
