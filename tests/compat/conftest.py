"""One dispatcher, two workers and one process with two replicas serve all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input import Input
from tests.integration import devices, reading
from tests.integration.cluster import Cluster, Sidecar, spec
from tests.integration.conftest import _shared, cluster, shared

__all__ = ["_shared", "cluster", "shared"]

assert devices.CPUS  # configured before TensorFlow starts


@pytest.fixture(scope="module")
def own(shared: Cluster) -> Sidecar:
    """A sidecar whose inputs the tests bring themselves, one after the other.

    Few splits, for the trainer traces each of them.
    """
    inputs = {n: spec(partitions=p, numSplits=p) for n, p in (("train", 2), ("in-order", 1))}
    return shared.add_sidecars(inputs)[0]


@pytest.fixture
def train(cluster: Cluster, own: Sidecar) -> Iterator[Input]:
    """`distributed_input.connect("train")`; the trainer brings the dataset."""
    with reading.connect(own, "train") as data:
        yield data


@pytest.fixture
def in_order(cluster: Cluster, own: Sidecar) -> Iterator[Input]:
    """As `train`, with one split: its rows come in the dataset's own order."""
    with reading.connect(own, "in-order") as data:
        yield data


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is a row of the page, or it belongs elsewhere."""
    here = Path(__file__).parent
    unmarked = [i.nodeid for i in items if here in i.path.parents and not _is_marked(i)]
    if unmarked:
        raise pytest.UsageError(f"not marked with @behaviour: {', '.join(unmarked)}")


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker("behaviour") is not None
