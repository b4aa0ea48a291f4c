"""KEDA's operator scales an input through its subresource `scale`, as docs/scaling.md shows."""

from __future__ import annotations

from testing.ecosystem.controllers import create
from testing.ecosystem.keda import prometheus, run_keda
from testing.operator.cluster import Cluster
from testing.operator.documentation import documented_manifest
from testing.operator.processes import Operator, eventually, manifest
from tests.operator.conftest import operator

__all__ = ["operator"]

NAME = "digits"  # the name in the manifest


def test_keda_starts_workers_of_an_input_without_any(
    cluster: Cluster, operator: Operator, control_plane, tmp_path
):
    cluster.create(manifest(NAME, workers={"replicas": 0}))
    eventually(lambda: cluster.get("Deployment", f"{NAME}-worker"))
    scaled = documented_manifest("ScaledObject")
    scaled["spec"]["pollingInterval"] = 1
    trigger = scaled["spec"]["triggers"][0]["metadata"]
    objects = f"/apis/keda.sh/v1alpha1/namespaces/{cluster.namespace}/scaledobjects"
    with run_keda(control_plane, tmp_path), prometheus(4.0) as (address, queries):
        trigger["serverAddress"] = address
        create(cluster, objects, scaled)

        def workers() -> int:
            """KEDA has set a number of workers, and the operator has created them."""
            found = cluster.get("DistributedInput", NAME) or {}
            asked: int = found["spec"]["workers"]["replicas"]
            return asked if len(cluster.pods(NAME)) == asked else 0

        def active() -> bool:
            """KEDA has used the value."""
            found = cluster.call("GET", f"{objects}/{NAME}").get("status", {})
            conditions = {one["type"]: one["status"] for one in found.get("conditions", ())}
            return conditions.get("Active") == "True"

        assert eventually(workers) == scaled["spec"]["minReplicaCount"]
        eventually(active)
    assert set(queries) == {trigger["query"]}
    path = f"/apis/autoscaling/v2/namespaces/{cluster.namespace}/horizontalpodautoscalers"
    (created,) = cluster.call("GET", path)["items"]
    assert created["spec"]["scaleTargetRef"] == scaled["spec"]["scaleTargetRef"]
    assert created["spec"]["maxReplicas"] == scaled["spec"]["maxReplicaCount"]
