"""The cluster's policy, and what its inputs have."""

from __future__ import annotations

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster


def policy(*budgets, name="cluster", **spec):
    """An InputPolicy."""
    return {
        "apiVersion": POLICY.api_version,
        "kind": POLICY.kind,
        "metadata": {"name": name},
        "spec": {"budgets": list(budgets), **spec},
    }


def apply(cluster: Cluster, *budgets, **spec) -> None:
    """Make this the cluster's policy."""
    cluster.call(
        "PATCH",
        POLICY.path(None, "cluster"),
        policy(*budgets, **spec),
        "application/apply-patch+yaml",
        fieldManager="tests",
        force="true",
    )


def workers(cluster: Cluster) -> list:
    """All worker pods that there are, those that leave included."""
    return cluster.list("Pod", "app.kubernetes.io/component=worker")


def replicas(cluster: Cluster, name: str) -> int:
    """What the workers' Deployment asks for; -1 where there is none."""
    found = cluster.get("Deployment", f"{name}-worker")
    return found["spec"]["replicas"] if found else -1
