"""A HorizontalPodAutoscaler of the real controller-manager scales an input, by our own signal.

The manifest is that of docs/scaling.md; from the trainers' heartbeats to the workers' Deployment
everything is real but the pods, and Prometheus between the operator and the adapter.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from distributed_input_operator import metrics
from testing.operator.dispatcher import dispatcher, token_of
from testing.operator.external_metrics import adapter
from testing.operator.processes import eventually, manifest
from testing.operator.scaling_docs import documented
from testing.operator.webhooks import free_port

NAME = "digits"  # as in the manifest
_LONG = 150.0
"""Rates are over 30 s, and HorizontalPodAutoscalers look every few."""


def autoscaler(minimum: int = 1) -> dict[str, Any]:
    """The documented one, which goes down at once: the tests do not wait two minutes for that."""
    made = documented("HorizontalPodAutoscaler")
    made["spec"]["minReplicas"] = minimum
    made["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    return made


@pytest.fixture
def path(cluster):
    """Of the autoscalers."""
    return f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers"


@pytest.fixture(scope="module")
def adapted(cluster, operator, control_plane, tmp_path_factory):
    """An adapter that serves what the operator exposes, as Prometheus would have it."""

    def value(namespace: str, metric: str, labels: str) -> float | None:
        name = labels.removeprefix("input=")
        wanted = f'{metric}{{input="{name}",namespace="{namespace}"}} '
        for line in operator.get("/metrics")[1].splitlines():
            if line.startswith(wanted):
                return float(line.rpartition(" ")[2])
        return None

    with adapter(control_plane, cluster, value, tmp_path_factory.mktemp("adapter")):
        yield


def condition(cluster, path, kind: str) -> dict[str, str]:
    """A condition of the autoscaler; empty where there is none."""
    found = cluster.call("GET", f"{path}/{NAME}").get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


@pytest.mark.timeout(600)
def test_it_scales_an_input_by_our_signal(cluster, operator, adapted, path, tmp_path):
    port = free_port()
    cluster.create(manifest(NAME, dispatcher={"port": port}))
    token = token_of(cluster, NAME)

    def replicas() -> tuple[int, int]:
        """As the autoscaler wrote it, and as the operator made it."""
        cluster.play_kubelet(NAME, "dispatcher", "127.0.0.1")
        cluster.play_kubelet(NAME)
        made = cluster.get("Deployment", f"{NAME}-worker")["spec"]["replicas"]
        return cluster.get("DistributedInput", NAME)["spec"]["workers"]["replicas"], made

    with dispatcher(port, token, tmp_path) as told:
        cluster.call("POST", path, autoscaler())
        # 100 rows a second in a quarter of the time are 400; a worker makes 100 while busy.
        eventually(lambda: replicas() == (4, 4), _LONG)
        assert condition(cluster, path, "AbleToScale")["status"] == "True"
        assert condition(cluster, path, "ScalingActive")["status"] == "True"
        fields = cluster.get("DistributedInput", NAME)["metadata"]["managedFields"]
        (owner,) = (one["manager"] for one in fields if one.get("subresource") == "scale")
        assert owner == "kube-controller-manager"
        told.waits = 0.0
        eventually(lambda: replicas() in ((1, 1), (2, 2)), _LONG)
    cluster.call("DELETE", f"{path}/{NAME}")
    cluster.delete("DistributedInput", NAME)


@pytest.mark.timeout(300)
def test_it_and_our_autoscaling_at_once_are_told(cluster, operator, adapted, path):
    scaling = {"minReplicas": 1, "maxReplicas": 6}
    cluster.create(manifest(NAME, workers={"replicas": 2, "autoscaling": scaling}))
    eventually(lambda: cluster.get("DistributedInput", NAME).get("status", {}).get("selector"))
    cluster.call("POST", path, autoscaler(minimum=3))

    def refused() -> bool:
        return condition(cluster, path, "AbleToScale").get("status") == "False"

    eventually(refused, _LONG)
    told = condition(cluster, path, "AbleToScale")["message"]
    assert "autoscaling owns the number of workers" in told
    assert cluster.get("DistributedInput", NAME)["spec"]["workers"]["replicas"] == 2
    cluster.call("DELETE", f"{path}/{NAME}")
    cluster.delete("DistributedInput", NAME)


def test_the_documented_manifests_name_what_there_is(cluster):
    keda, own = documented("ScaledObject")["spec"], documented("HorizontalPodAutoscaler")["spec"]
    target = {"apiVersion": "distributed-input.dev/v1alpha1", "kind": "DistributedInput"}
    for spec in (keda, own):
        assert spec["scaleTargetRef"] == target | {"name": NAME}
    (trigger,), (by,) = keda["triggers"], own["metrics"]
    (described,) = metrics.RECOMMENDED.describe()
    name = described.name
    assert by["external"]["metric"]["name"] == name
    labels = set(re.findall(r"(\w+)=", trigger["metadata"]["query"]))
    assert f"{name}{{" in trigger["metadata"]["query"]
    assert labels == set(metrics.RECOMMENDED._labelnames)
