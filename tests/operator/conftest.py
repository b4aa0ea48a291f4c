from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kubernetes

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster, Refused
from testing.operator.processes import Operator, eventually, running

_CRD_FILES = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(cluster: Cluster) -> None:
    """Create or update the definitions and wait until they are served."""
    for file in _CRD_FILES:
        crd = yaml.safe_load(file.read_text())
        name = crd["metadata"]["name"]
        kind = "application/apply-patch+yaml"
        cluster.call("PATCH", f"{_CRDS}/{name}", crd, kind, fieldManager="tests", force="true")

    def served() -> bool:
        try:
            paths = (cluster.path("DistributedInput"), POLICY.path(None))
            return all("items" in cluster.call("GET", path) for path in paths)
        except Refused:
            return False

    eventually(served)


@pytest.fixture(scope="module")
def cluster(api: kubernetes.ApiClient) -> Iterator[Cluster]:
    """A namespace of this file's own, and the definition."""
    core: Any = kubernetes.CoreV1Api(api)
    name = f"op-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}})
    made = Cluster(api, name)
    install(made)
    yield made
    core.delete_namespace(name)


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, control_plane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """An operator that serves the file's namespace."""
    folder = tmp_path_factory.mktemp("operator")
    with running(control_plane.kubeconfig, cluster.namespace, folder) as made:
        yield made
