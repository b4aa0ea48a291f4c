"""Migration to another stored version, as docs/api-versions.md describes it, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually
from testing.operator.versions import (
    DEFINITION_PATH,
    beta_path,
    serve_beta,
    set_definition,
    versions,
)
from testing.operator.webhooks import Webhook

Json = dict[str, Any]
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def webhook(
    cluster: Cluster, control_plane: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Webhook]:
    folder = tmp_path_factory.mktemp("storage")
    with serve_beta(cluster, control_plane.kubeconfig, folder) as created:
        yield created


def an_input(version: str, name: str, **spec: Any) -> Json:
    return {
        "apiVersion": f"distributed-input.dev/{version}",
        "kind": "DistributedInput",
        "metadata": {"name": name},
        "spec": spec,
    }


def store_as(cluster: Cluster, version: str) -> None:
    """Change the stored version, and store all inputs again."""
    set_definition(cluster, versions(beta=True, storage=version))
    eventually(lambda: version in stored_versions(cluster))
    eventually(lambda: works(cluster))
    for one in cluster.list("DistributedInput"):
        eventually(lambda name=one["metadata"]["name"]: replaced(cluster, name))
    status = {"status": {"storedVersions": [version]}}
    cluster.call("PATCH", f"{DEFINITION_PATH}/status", status, MERGE)


def replaced(cluster: Cluster, name: str) -> bool:
    """Store an input again. False: the operator wrote its status in between."""
    path = cluster.path("DistributedInput", name)
    try:
        cluster.call("PUT", path, cluster.call("GET", path))
    except RequestRejected as error:
        if error.status != 409:
            raise
        return False
    return True


def stored_versions(cluster: Cluster) -> list[str]:
    found: list[str] = cluster.call("GET", DEFINITION_PATH)["status"]["storedVersions"]
    return found


def works(cluster: Cluster) -> bool:
    """Whether the API server serves both versions with the present definition."""
    try:
        cluster.call("GET", beta_path(cluster))
        body = an_input("v1beta1", "probe")
        cluster.call("POST", beta_path(cluster), body, dryRun="All")
    except RequestRejected:
        return False
    return True


def content(found: Json | None) -> tuple[Json, Json]:
    assert found is not None
    return found["spec"], found["metadata"].get("annotations", {})


def test_inputs_are_the_same_after_a_migration_and_back(cluster: Cluster, webhook: Webhook) -> None:
    accelerator = {"type": "gke-nvidia"}
    cluster.create(
        an_input(
            "v1alpha1", "old", dataset={"fromTrainer": True}, workers={"accelerator": accelerator}
        )
    )
    weight = {"weight": "500m"}
    cluster.call(
        "POST", beta_path(cluster), an_input("v1beta1", "new", trainers=weight, seed=2**62)
    )
    names = ("old", "new")
    before = [content(cluster.get("DistributedInput", name)) for name in names]
    beta = [content(cluster.call("GET", beta_path(cluster, name))) for name in names]
    try:
        store_as(cluster, "v1beta1")
        assert stored_versions(cluster) == ["v1beta1"]
        assert [content(cluster.get("DistributedInput", name)) for name in names] == before
        assert [content(cluster.call("GET", beta_path(cluster, name))) for name in names] == beta
        # The operator continues: the API server converts what it reads.
        cluster.patch("DistributedInput", "old", {"spec": {"workers": {"replicas": 2}}})
        worker = "old-worker"
        eventually(lambda: cluster.get("Deployment", worker) is not None)
        eventually(
            lambda: (cluster.get("Deployment", worker) or {"spec": {}})["spec"].get("replicas") == 2
        )
    finally:
        store_as(cluster, "v1alpha1")
    assert stored_versions(cluster) == ["v1alpha1"]
    before[0][0]["workers"]["replicas"] = 2
    assert [content(cluster.get("DistributedInput", name)) for name in names] == before
