"""One dispatcher and two workers for all tests that kill nothing. Sidecars are started per test."""

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
    """Yield the cluster for a module's fixtures. Its sidecars stop with the module."""
    yield _shared
    _shared.remove(_shared.sidecars)
    _shared.sidecars.clear()


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """Yield the cluster for a test. If the test fails, the new lines of the logs are shown."""
    shared.new_log_lines()
    yield shared
    print(shared.new_log_lines())


@pytest.fixture
def own_cluster() -> Iterator[Cluster]:
    """Yield a cluster without workers, for a test that kills parts. Its logs are shown."""
    with Cluster() as cluster:
        yield cluster
        print(cluster.new_log_lines())
