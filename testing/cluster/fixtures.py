"""Fixtures for tests with a real API server. `tests/conftest.py` loads them for all tests."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    # Every test run loads this module, and importing the client takes a second.
    from kubernetes import client as kubernetes

    from testing.cluster.control_plane import ControlPlane
    from testing.cluster.lifecycle import NodeCluster

# The first version with ValidatingAdmissionPolicy in admissionregistration.k8s.io/v1.
_ADMISSION_POLICIES = (1, 30)


def skip_or_fail(what: str) -> NoReturn:
    """Skip the test because of a missing requirement. With CI=true, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Provide a control plane without nodes. All tests share it: use your own namespace."""
    from testing.cluster.control_plane import ControlPlane

    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(folder) as plane:
        yield plane
    # pytest keeps the folders of three runs, for the logs. This one has over 100 MiB.
    shutil.rmtree(folder / "etcd")


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Iterator[kubernetes.ApiClient]:
    """Provide a client with all permissions."""
    with control_plane.client() as client:
        yield client


@pytest.fixture(scope="session")
def server_version(api: kubernetes.ApiClient) -> tuple[int, int]:
    """Provide the API server's version, such as (1, 34)."""
    from kubernetes import client as kubernetes

    found: Any = kubernetes.VersionApi(api).get_code()
    return int(found.major), int(found.minor.rstrip("+"))


@pytest.fixture(scope="session")
def has_admission_policies(server_version: tuple[int, int]) -> bool:
    """Provide whether the chart renders admission policies for this API server."""
    return server_version >= _ADMISSION_POLICIES


@pytest.fixture(scope="session")
def admission_policies(server_version: tuple[int, int], has_admission_policies: bool) -> None:
    """Skip the test if this version of Kubernetes has no ValidatingAdmissionPolicies."""
    if not has_admission_policies:
        found, needed = ("{}.{}".format(*one) for one in (server_version, _ADMISSION_POLICIES))
        pytest.skip(f"Kubernetes {found} has no admission policies: they need {needed}")


@pytest.fixture
def namespace(api: kubernetes.ApiClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """Create a namespace for this test and delete it after the test."""
    from kubernetes import client as kubernetes

    core: Any = kubernetes.CoreV1Api(api)
    name = f"t-{uuid.uuid4().hex[:8]}"
    annotations = {"distributed-input.dev/test": request.node.nodeid[-200:]}
    core.create_namespace({"metadata": {"name": name, "annotations": annotations}})
    yield name
    # The deletion continues in the background.
    core.delete_namespace(name)


@pytest.fixture(scope="session")
def node_cluster() -> NodeCluster:
    """Provide a cluster with a node that runs pods, and this checkout's images.

    The cluster keeps running, so that the next test run starts faster. `make cluster-down` deletes
    it. If this machine cannot run one, the test is skipped; with CI=true it fails.
    """
    from testing.cluster import lifecycle, packages

    try:
        return lifecycle.up()
    except packages.MissingRequirement as missing:
        skip_or_fail(f"no cluster: {missing}")
