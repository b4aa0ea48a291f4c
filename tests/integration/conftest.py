"""One dispatcher and two workers serve all tests that break nothing; sidecars come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.integration.cluster import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def _shared() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.add_workers(2, *(f"--path={EXAMPLES / name}" for name in ("digits", "photos")))
        yield cluster


@pytest.fixture(scope="module")
def shared(_shared: Cluster) -> Iterator[Cluster]:
    """The cluster, for a module's own fixtures; its sidecars go with the module."""
    yield _shared
    _shared.remove(_shared.sidecars)
    _shared.sidecars.clear()


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """The cluster, for a test; what its processes logged meanwhile is shown if the test fails."""
    shared.new_log_lines()
    yield shared
    print(shared.new_log_lines())
