from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as kubernetes

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import Operator, eventually, run_operator
from testing.operator.proxy import Proxy

_CRD_FILES = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install(cluster: Cluster) -> None:
    """Create or update the CRDs and wait until the API server serves them."""
    for file in _CRD_FILES:
        crd = yaml.safe_load(file.read_text())
        name = crd["metadata"]["name"]
        content_type = "application/apply-patch+yaml"
        cluster.call(
            "PATCH", f"{_CRDS}/{name}", crd, content_type, fieldManager="tests", force="true"
        )

    def served() -> bool:
        try:
            paths = (cluster.path("DistributedInput"), POLICY.path(None))
            return all("items" in cluster.call("GET", path) for path in paths)
        except RequestRejected:
            return False

    eventually(served)


@pytest.fixture(scope="module")
def cluster(api: kubernetes.ApiClient) -> Iterator[Cluster]:
    """Create a namespace for this test file, and install the CRDs."""
    core: Any = kubernetes.CoreV1Api(api)
    name = f"op-{uuid.uuid4().hex[:8]}"
    core.create_namespace({"metadata": {"name": name}})
    created = Cluster(api, name)
    install(created)
    yield created
    core.delete_namespace(name)


@pytest.fixture(scope="module")
def operator(
    cluster: Cluster, control_plane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Operator]:
    """Run an operator for the file's namespace."""
    folder = tmp_path_factory.mktemp("operator")
    with run_operator(control_plane.kubeconfig, cluster.namespace, folder) as created:
        yield created


@pytest.fixture
def name(cluster: Cluster, operator: Operator, request: pytest.FixtureRequest) -> Iterator[str]:
    """Provide an input name. Delete the input after the test."""
    created = f"i{abs(hash(request.node.nodeid)) % 10**8}"
    yield created
    if cluster.get("DistributedInput", created):
        cluster.delete("DistributedInput", created)


@pytest.fixture
def proxy(control_plane, tmp_path: Path) -> Iterator[Proxy]:
    """Run a proxy in front of the API server."""
    created = Proxy(control_plane.kubeconfig, tmp_path)
    yield created
    created.close()
