"""Two operators share a cluster: each manages the inputs of its class, and one of a class leads."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.names import INPUT_LABEL
from testing.operator.cluster import RequestRejected
from testing.operator.processes import Operator, eventually, manifest, run_operator


def managers(cluster: Any, name: str) -> set[str]:
    """Return the field managers of an input's children, without those of Kubernetes."""
    selector = f"{INPUT_LABEL}={name}"
    found = [one for kind in ("Deployment", "Service") for one in cluster.list(kind, selector)]
    fields = [field for one in found for field in one["metadata"]["managedFields"]]
    return {one["manager"] for one in fields if one["operation"] == "Apply"}


def test_each_operator_manages_the_inputs_of_its_class(cluster, operator, control_plane, tmp_path):
    flags = ("--namespace", cluster.namespace, "--operator-class", "canary")
    kubeconfig, namespace = control_plane.kubeconfig, cluster.namespace
    with run_operator(kubeconfig, namespace, tmp_path, *flags) as canary:
        cluster.create(manifest("plain"))
        cluster.create(manifest("classed", managedBy="distributed-input.dev/canary"))
        for name in ("plain", "classed"):
            cluster.wait_until_ready(name, 1)
        assert managers(cluster, "plain") == {"distributed-input-operator"}
        assert managers(cluster, "classed") == {"distributed-input-operator-canary"}
        assert "classed" not in operator.get("/metrics")[1]
        assert "plain" not in canary.get("/metrics")[1]
        with pytest.raises(RequestRejected, match="managedBy is immutable"):
            cluster.patch(
                "DistributedInput", "plain", {"spec": {"managedBy": "distributed-input.dev/canary"}}
            )
        cluster.delete("DistributedInput", "classed")
        eventually(lambda: not cluster.children("classed"))
        assert cluster.condition("plain", "Ready")["status"] == "True"
    cluster.delete("DistributedInput", "plain")


def test_releases_of_one_class_in_two_namespaces_share_a_lease(
    cluster, operator, control_plane, tmp_path
):
    shared = ("--namespace", cluster.namespace, "--lease-namespace", cluster.namespace)
    second = Operator(control_plane.kubeconfig, "default", tmp_path, *shared)
    try:
        eventually(lambda: second.get("/readyz")[0] == 200)
        assert second.metric("distributed_input_operator_leader") == 0
        assert operator.stop() == 0
        second.wait_until_leading()
    finally:
        second.stop()
