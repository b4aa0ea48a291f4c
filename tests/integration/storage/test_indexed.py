"""A dataset that is read by index: its splits divide it, whatever the topology and what dies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import PositionError
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec

ROWS, BATCH = 1000, 20
FULL = 45
"""Steps before the first partition ends."""


@pytest.fixture
def own() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def sidecars(cluster: Cluster, folder: Path, trainers: int = 1, rows: int = ROWS) -> list[Sidecar]:
    file = folder / "rows"
    file.write_text(str(rows))
    args = {"file": str(file)}
    one: Any = spec("by_index:squares", args, partitions=4, globalBatchSize=BATCH)
    return cluster.add_sidecars({"squares": one}, trainers)


def steps(epochs: list[list[list[Any]]], epoch: int) -> list[list[int]]:
    """Return the rows of each step of an epoch, of all trainers together, sorted."""
    return [
        sorted(readers.ids(parts)) for parts in zip(*(one[epoch] for one in epochs), strict=True)
    ]


def test_all_topologies_have_the_same_steps_of_rows_that_were_shuffled_together(
    cluster: Cluster, tmp_path: Path
) -> None:
    alone = sidecars(cluster, tmp_path)
    expected = readers.read(alone, epochs=2)
    cluster.remove(alone)
    pair = sidecars(cluster, tmp_path, trainers=2)
    found = readers.read(pair, epochs=2)
    for epoch in (0, 1):
        rows, others = steps(expected, epoch), steps(found, epoch)
        assert rows[:FULL] == others[:FULL]
        for read in (rows, others):
            assert sorted(itertools.chain(*read)) == list(range(ROWS))
        assert max(rows[0]) - min(rows[0]) > ROWS / 2
    assert steps(found, 0) != steps(found, 1)


def test_a_killed_worker_and_a_restored_trainer_lose_nothing(own: Cluster, tmp_path: Path) -> None:
    own.add_workers(2)
    first = sidecars(own, tmp_path)
    with readers.connect(first[0]) as data:
        batches = data.numpy()
        got = readers.ids(next(batches) for _ in range(10))
        own.workers[0].kill()
        got += readers.ids(next(batches) for _ in range(10))
        position = data.position()
    own.remove(first)
    own.add_workers(1)
    with readers.connect(sidecars(own, tmp_path)[0]) as data:
        data.restore(position)
        assert sorted(got + readers.ids(data.numpy())) == list(range(ROWS))


def test_a_position_of_another_number_of_rows_is_an_error(
    cluster: Cluster, own: Cluster, tmp_path: Path
) -> None:
    first = sidecars(cluster, tmp_path)
    with readers.connect(first[0]) as data:
        next(data.numpy())
        position = data.position()
    cluster.remove(first)
    own.add_workers(1)
    with readers.connect(sidecars(own, tmp_path, rows=ROWS + 1)[0]) as data:
        data.restore(position)
        with pytest.raises(PositionError, match="number of rows"):
            next(data.numpy())
