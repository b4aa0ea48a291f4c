"""Padded batches are found with their values, and the rows are found without the padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.tfdata.analysis import padding
from distributed_input.tfdata.analysis.batches import ElementBatches, find_batches
from distributed_input.tfdata.graph.canonical import serialize
from tests.unit.distributed_input.tfdata.graphcases import run

Data: TypeAlias = tf.data.Dataset
ROWS = Data.range(1, 6).map(lambda x: {"a": tf.range(x), "b": tf.strings.as_string(tf.range(x))})
COMPLEX = Data.range(3).map(lambda x: tf.cast(tf.range(x), tf.complex128))
VALUES = {"a": tf.constant(-1, tf.int64), "b": "?"}


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: ROWS.padded_batch(2), (0, "")),
        (lambda: ROWS.padded_batch(2, padding_values=VALUES).shuffle(2).prefetch(1), (-1, "?")),
        (lambda: COMPLEX.padded_batch(2), ("0j",)),
        (lambda: COMPLEX.padded_batch(2, padding_values=tf.constant(1 - 2j)), ("(1-2j)",)),
        (lambda: ROWS.padded_batch(2).map(lambda x: x), ()),
        (lambda: ROWS.map(lambda x: x["a"][:1]).batch(2), ()),
    ],
)
def test_the_values_of_a_padded_batch_are_found(
    make: Callable[[], Data], values: tuple[Any, ...]
) -> None:
    assert padding.values(serialize(make())) == values


FIXED = {"a": [9], "b": [9]}


@pytest.mark.parametrize(
    ("make", "size", "removed"),
    [
        (lambda: ROWS.padded_batch(2).prefetch(1), 2, True),
        (lambda: ROWS.padded_batch(2, padded_shapes=FIXED), 2, False),
        (lambda: ROWS.padded_batch(2, padded_shapes=FIXED).shuffle(2), 2, False),
        (lambda: ROWS.padded_batch(2, padded_shapes={"a": [9], "b": [None]}), None, False),
        (lambda: ROWS.padded_batch(2).shuffle(2), None, False),
    ],
)
def test_rows_are_batched_again_if_their_sizes_then_are_those_of_tensorflow(
    make: Callable[[], Data], size: int | None, removed: bool
) -> None:
    graph = serialize(make())
    assert find_batches(graph) == ElementBatches(True, size)
    assert padding.remove(graph) is removed
    if removed:
        spec = {"a": tf.TensorSpec([None], tf.int64), "b": tf.TensorSpec([None], tf.string)}
        assert [row["a"] for row in run(graph, spec)] == [list(range(x)) for x in range(1, 6)]
