"""The examples' datasets: each row arrives once per epoch, on 1, 2 and 4 trainers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from testing.integration import readers
from testing.integration.cluster import spec
from testing.integration.readers import epoch, global_steps, ids

DIGITS = set(range(1797)) - set(range(0, 1797, 5))  # every fifth row is for testing
PHOTOS = set(range(2560))
EXPECTED = {"digits": DIGITS, "photos": PHOTOS}


def example(name: str, **fields: Any) -> Any:
    return spec(f"{name}:dataset_fn", {"folder": "data"}, buffer="32Mi", **fields)


@pytest.mark.parametrize("consumers", [1, 2, 4])
@pytest.mark.parametrize("name", EXPECTED)
def test_every_row_arrives_once(cluster, name, consumers):
    sidecars = cluster.add_sidecars({f"{name}-{consumers}": example(name)}, consumers)
    read = readers.read(sidecars, epochs=2 if name == "digits" else 1)
    epochs = [global_steps(epoch(read, number)) for number in range(len(read[0]))]
    for steps in epochs:
        assert sorted(itertools.chain(*steps)) == sorted(EXPECTED[name])
    assert name == "photos" or epochs[0] != epochs[1]


@pytest.mark.parametrize("consumers", [1, 2, 4])
def test_in_parallel_epochs_each_trainer_reads_every_row_once(cluster, consumers):
    one = example("digits", processingMode="ParallelEpochs")
    read = readers.read(cluster.add_sidecars({f"each-{consumers}": one}, consumers), epochs=2)
    orders = [ids(batches) for epochs in read for batches in epochs]
    assert all(sorted(order) == sorted(DIGITS) for order in orders)
    assert len({tuple(order) for order in orders}) == 2 * consumers
