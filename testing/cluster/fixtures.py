"""Fixtures for tests against a real API server; `tests/conftest.py` brings them to every test."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    # Every test run loads this module, and the client takes a second.
    from kubernetes import client as kubernetes

    from testing.cluster.control_plane import ControlPlane
    from testing.cluster.whole import Cluster


def lacking(what: str) -> NoReturn:
    """Skip a test for what this machine or cluster cannot have; with CI=true, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without nodes, one for all tests: keep to your own namespace."""
    from testing.cluster.control_plane import ControlPlane

    folder = tmp_path_factory.mktemp("control-plane")
    with ControlPlane(folder) as plane:
        yield plane
    # Over 100 MiB, and pytest keeps the folders of three runs, for their logs.
    shutil.rmtree(folder / "etcd")


@pytest.fixture(scope="session")
def api(control_plane: ControlPlane) -> Iterator[kubernetes.ApiClient]:
    """A client with every right."""
    with control_plane.client() as client:
        yield client


@pytest.fixture
def namespace(api: kubernetes.ApiClient, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a namespace of this test's own, deleted after it."""
    from kubernetes import client as kubernetes

    core: Any = kubernetes.CoreV1Api(api)
    name = f"t-{uuid.uuid4().hex[:8]}"
    note = {"distributed-input.dev/test": request.node.nodeid[-200:]}
    core.create_namespace({"metadata": {"name": name, "annotations": note}})
    yield name
    # Its controllers finish that; nobody waits.
    core.delete_namespace(name)


@pytest.fixture(scope="session")
def whole_cluster() -> Cluster:
    """A cluster with a node that runs pods, and this checkout's images: `tests/cluster/whole.py`.

    It stays up, for the next run is much quicker then; `make cluster-down` takes it away. Where
    this machine cannot have one, what asks for it is skipped; with CI=true that is a failure.
    """
    from testing.cluster import packages, whole

    try:
        return whole.up()
    except packages.Missing as missing:
        lacking(f"no cluster: {missing}")
