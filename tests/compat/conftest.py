"""One dispatcher, two workers and one process with two replicas for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input import Input
from testing.integration import devices, readers
from testing.integration.cluster import Cluster, Sidecar, spec
from tests.integration.conftest import _shared, cluster, shared

__all__ = ["_shared", "cluster", "shared"]

assert devices.CPUS  # configured before TensorFlow starts


@pytest.fixture(scope="module")
def own(shared: Cluster) -> Sidecar:
    """Start a sidecar for datasets that the tests provide, one after another.

    It has few splits, because the trainer traces each of them.
    """
    inputs = {n: spec(partitions=p, numSplits=p) for n, p in (("train", 2), ("in-order", 1))}
    return shared.add_sidecars(inputs)[0]


@pytest.fixture
def train(cluster: Cluster, own: Sidecar, request: pytest.FixtureRequest) -> Iterator[Input]:
    """Yield `distributed_input.connect("train")`; the trainer provides the dataset."""
    yield from _read(own, "train", request)


@pytest.fixture
def in_order(cluster: Cluster, own: Sidecar, request: pytest.FixtureRequest) -> Iterator[Input]:
    """Yield an input like `train` with one split: its rows arrive in the dataset's order."""
    yield from _read(own, "in-order", request)


def _read(sidecar: Sidecar, name: str, request: pytest.FixtureRequest) -> Iterator[Input]:
    """Yield an input, and require that the test reads it unless the behaviour is an error.

    TensorFlow's own datasets show most of the behaviour too. A test that does not read through the
    sidecar would show nothing.
    """
    (first, *_) = (mark.args[0] for mark in request.node.iter_markers("behaviour"))
    with readers.connect(sidecar, name) as data:
        yield data
        if "Error`" not in first.call:
            assert data.generation, "nothing was read through the sidecar"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Require that every test here is a row of the page."""
    here = Path(__file__).parent
    unmarked = [i.nodeid for i in items if here in i.path.parents and not _is_marked(i)]
    if unmarked:
        raise pytest.UsageError(f"not marked with @behaviour: {', '.join(unmarked)}")


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker("behaviour") is not None
