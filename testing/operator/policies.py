"""Functions that set the cluster's policy and count the workers of its inputs."""

from __future__ import annotations

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster


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


def worker_pods(cluster: Cluster) -> list:
    """Return all worker pods, including terminating ones."""
    return cluster.list("Pod", "app.kubernetes.io/component=worker")


def worker_replicas(cluster: Cluster, name: str) -> int:
    """Return spec.replicas of the workers' Deployment, or -1 if there is none."""
    found = cluster.get("Deployment", f"{name}-worker")
    return found["spec"]["replicas"] if found else -1
