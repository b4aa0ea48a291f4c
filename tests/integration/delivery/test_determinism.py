"""Step t has the same rows, to the last bit, on any number of trainers and workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testing.integration import readers
from testing.integration.cluster import Cluster, spec
from testing.integration.readers import epoch, global_steps, rows_of

ROWS = 150
BATCH = 16
EPOCHS = 2
Read = list[list[list[Any]]]


def augmented(**fields: Any) -> Any:
    """Return an input that is shuffled, sharded, augmented in parallel, and shuffled again."""
    return spec("rows:augmented", {"rows": ROWS, "global_batch": BATCH}, **fields)


def full_steps(read: Read, number: int) -> list[list[int]]:
    """Return the steps of an epoch while no partition is empty.

    Later steps depend on the topology.
    """
    # 150 rows in 32 splits: a partition has at least 16 rows, and a step takes 2 of them.
    return global_steps(epoch(read, number))[:8]


@pytest.fixture(scope="module")
def on_one(shared: Cluster) -> Read:
    """Read with a single trainer."""
    return readers.read(shared.add_sidecars({"one": augmented()}), epochs=EPOCHS)


@pytest.fixture(scope="module")
def second_cluster() -> Iterator[Cluster]:
    """Start other processes, with one worker."""
    with Cluster() as cluster:
        cluster.add_workers(1)
        yield cluster


def assert_same(read: Read, expected: Read) -> None:
    for number in range(EPOCHS):
        assert full_steps(read, number) == full_steps(expected, number)
        assert all(len(step) == BATCH for step in full_steps(read, number))
        found = rows_of(epoch(read, number))
        assert found.keys() == set(range(ROWS))
        assert found == rows_of(epoch(expected, number))


@pytest.mark.parametrize("consumers", [2, 4])
def test_steps_are_the_same_on_several_trainers(
    cluster: Cluster, on_one: Read, consumers: int
) -> None:
    sidecars = cluster.add_sidecars({f"many-{consumers}": augmented()}, consumers)
    assert_same(readers.read(sidecars, epochs=EPOCHS), on_one)


def test_steps_are_the_same_on_one_worker_of_another_cluster(
    second_cluster: Cluster, on_one: Read
) -> None:
    assert_same(
        readers.read(second_cluster.add_sidecars({"one": augmented()}), epochs=EPOCHS), on_one
    )
    assert len(second_cluster.status().workers) == 1


def test_steps_are_the_same_on_five_workers(cluster: Cluster, on_one: Read) -> None:
    added = cluster.add_workers(3)
    try:
        sidecars = cluster.add_sidecars({"five": augmented(partitions=8)})
        assert_same(readers.read(sidecars, epochs=EPOCHS), on_one)
        assert len(cluster.status().workers) == 5
    finally:
        cluster.remove(added)


def test_epochs_differ_in_order_and_augmentation(on_one: Read) -> None:
    first, second = (rows_of(epoch(on_one, number)) for number in (0, 1))
    assert full_steps(on_one, 0) != full_steps(on_one, 1)
    same = [row for row in first if first[row]["noise"] == second[row]["noise"]]
    assert same == []
    # Values that the user seeds by the row alone do not change.
    assert [row for row in first if first[row]["flip"] != second[row]["flip"]] == []


def test_every_row_has_different_noise(on_one: Read) -> None:
    noise = [values["noise"] for values in rows_of(epoch(on_one)).values()]
    assert len(set(noise)) == ROWS


def test_another_seed_gives_another_order(cluster: Cluster, on_one: Read) -> None:
    read = readers.read(cluster.add_sidecars({"reseeded": augmented(seed=1)}), epochs=1)
    assert full_steps(read, 0) != full_steps(on_one, 0)
    found, expected = rows_of(epoch(read)), rows_of(epoch(on_one))
    assert found.keys() == expected.keys()
    assert [row for row in found if found[row]["noise"] == expected[row]["noise"]] == []
