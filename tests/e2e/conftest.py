"""Fixtures: the chart, installed once for all tests, and one namespace for each test file."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from testing.e2e.release import Release

if TYPE_CHECKING:
    from testing.cluster.kubectl import Kubectl
    from testing.cluster.lifecycle import NodeCluster

_MEASURED = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def release(node_cluster: NodeCluster) -> Iterator[Release]:
    """Install the chart with this checkout's images."""
    created = Release(node_cluster.kubeconfig, node_cluster.images)
    created.install()
    yield created
    created.uninstall()


@pytest.fixture(scope="module")
def kubectl(release: Release) -> Iterator[Kubectl]:
    """Provide kubectl in a namespace of this file with the restricted pod security standard."""
    from testing.cluster.kubectl import Kubectl

    created = Kubectl(release.kubectl.kubeconfig, f"e2e-{uuid.uuid4().hex[:6]}")
    created("create", "namespace", created.namespace)
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    created("label", "namespace", created.namespace, enforce)
    yield created
    created("delete", "namespace", created.namespace, "--wait=false")


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that adds a line to the report at the end of the tests."""
    return request.config.stash.setdefault(_MEASURED, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the measurements of the tests."""
    lines = config.stash.get(_MEASURED, [])
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)
