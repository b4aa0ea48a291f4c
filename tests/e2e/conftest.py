"""The chart, installed once for all tests, and a namespace for each file of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from testing.e2e.release import Release

if TYPE_CHECKING:
    from testing.cluster.kubectl import Kubectl
    from testing.cluster.whole import Cluster

_MEASURED = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def release(whole_cluster: Cluster) -> Iterator[Release]:
    """The chart, installed and ready, with this checkout's images."""
    made = Release(whole_cluster.kubeconfig, whole_cluster.images)
    made.install()
    yield made
    made.uninstall()


@pytest.fixture(scope="module")
def kubectl(release: Release) -> Iterator[Kubectl]:
    """kubectl in a namespace of this file's, under the restricted pod security standard."""
    from testing.cluster.kubectl import Kubectl

    made = Kubectl(release.kubectl.kubeconfig, f"e2e-{uuid.uuid4().hex[:6]}")
    made("create", "namespace", made.namespace)
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    made("label", "namespace", made.namespace, enforce)
    yield made
    made("delete", "namespace", made.namespace, "--wait=false")


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line for the report at the end of the tests."""
    return request.config.stash.setdefault(_MEASURED, []).append


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was measured on the way."""
    lines = config.stash.get(_MEASURED, [])
    if lines:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.write_line(line)
