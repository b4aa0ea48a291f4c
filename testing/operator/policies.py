"""Functions that set the cluster's policy and count the workers of its inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster, RequestRejected


def policy(*budgets, name="cluster", **spec):
    """Return an InputPolicy."""
    return {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.kind,
        "metadata": {"name": name},
        "spec": {"budgets": list(budgets), **spec},
    }


def apply_policy(cluster: Cluster, *budgets, **spec) -> None:
    """Create or replace the cluster's policy."""
    cluster.call(
        "PATCH",
        POLICY.path(None, "cluster"),
        policy(*budgets, **spec),
        "application/apply-patch+yaml",
        fieldManager="tests",
        force="true",
    )


def budget(cluster: Cluster, workers: int, name: str = "all") -> dict[str, Any]:
    """Return a budget of workers for the inputs of this namespace."""
    return {"name": name, "namespaces": [cluster.namespace], "limits": {"workers": workers}}


@contextmanager
def policy_in_force(cluster: Cluster, *budgets) -> Iterator[None]:
    """Set the cluster's policy, and delete it at the end if it is still there."""
    apply_policy(cluster, *budgets)
    try:
        yield
    finally:
        with suppress(RequestRejected):
            cluster.call("DELETE", POLICY.path(None, "cluster"))


def worker_pods(cluster: Cluster) -> list:
    """Return all worker pods, including terminating ones."""
    return cluster.list("Pod", "app.kubernetes.io/component=worker")


def worker_replicas(cluster: Cluster, name: str) -> int:
    """Return spec.replicas of the workers' Deployment, or -1 if there is none."""
    found = cluster.get("Deployment", f"{name}-worker")
    return found["spec"]["replicas"] if found else -1
