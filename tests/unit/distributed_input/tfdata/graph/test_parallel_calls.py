"""The calls that the maps of a dataset make in parallel."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distributed_input.tfdata.graph import canonical
from distributed_input.tfdata.graph.parallel_calls import parallel_calls

RANGE = tf.data.Dataset.range(8)


def double(row: tf.Tensor) -> tf.Tensor:
    return 2 * row


@pytest.mark.parametrize(
    ("dataset", "calls"),
    [
        (RANGE, 0),
        (RANGE.map(double), 0),
        (RANGE.map(double, num_parallel_calls=tf.data.AUTOTUNE), 0),
        (RANGE.map(double, num_parallel_calls=48), 48),
        (RANGE.map(double, 3).map(double, 12).map(double, 5).batch(2), 12),
    ],
    ids=["no map", "serial", "AUTOTUNE", "48", "the largest"],
)
def test_parallel_calls_are_read_from_the_graph(dataset: tf.data.Dataset, calls: int) -> None:
    assert parallel_calls(canonical.serialize(dataset)) == calls


def test_a_map_and_batch_has_parallel_calls() -> None:
    dataset = RANGE.apply(
        tf.data.experimental.map_and_batch(double, batch_size=4, num_parallel_calls=7)
    )
    assert parallel_calls(canonical.serialize(dataset)) == 7
