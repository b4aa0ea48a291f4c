"""Functions that work row by row are found, and others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.graph.analysis.batches import is_row_map
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.datasets import MAPS, kind, main_scope

TABLE = tf.constant([[5.0, 6.0]] * 12)
WEIGHTS = tf.Variable([[1.0], [2.0], [3.0]])
MATRICES = tf.data.Dataset.range(12).map(lambda x: tf.fill([3], tf.cast(x, tf.float32)))
PARSED = {"a": tf.io.FixedLenFeature([2], tf.float32)}

BY_ROWS: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: tf.nn.relu(x * 2.0 - [1.0, 2.0, 3.0]) / 4.0,
    "several results": lambda x: {"x": x, "sum": tf.reduce_sum(x, 1), "last": x[:, -1]},
    "stack": lambda x: tf.stack([x, x + 1.0], axis=1),
    "unstack": lambda x: tf.unstack(x, axis=1)[0],
    "concatenation": lambda x: tf.concat([x, x], -1),
    "matrices": lambda x: tf.matmul(x, WEIGHTS),
    "reshape": lambda x: tf.reshape(x, [-1, 3, 1]),
    "transposed": lambda x: tf.transpose(x[:, :, tf.newaxis], [0, 2, 1]),
    "one-hot": lambda x: tf.one_hot(tf.cast(x[:, 0], tf.int32), 5),
    "gather": lambda x: tf.gather(TABLE, tf.cast(x[:, 0], tf.int32)),
    "select": lambda x: tf.where(x > 2.0, x, 0.0),
    "strings": lambda x: tf.strings.to_number(tf.strings.as_string(x)),
    "softmax": tf.nn.softmax,
    "tf.function": tf.function(lambda x: x + 1.0),
    "padding": lambda x: tf.pad(x, [[0, 0], [1, 1]]),
}
NOT_BY_ROWS: dict[str, Callable[[Any], Any]] = {
    "mean of the batch": lambda x: x - tf.reduce_mean(x, 0),
    "mean of all": lambda x: x - tf.reduce_mean(x),
    "reversed": lambda x: x[::-1],
    "other rows": lambda x: tf.roll(x, 1, 0),
    "doubled": lambda x: tf.concat([x, x], 0),
    "number of rows": lambda x: x / tf.cast(tf.shape(x)[0], tf.float32),
    "first row": lambda x: x - x[:1],
    "without a dimension": tf.reduce_sum,
    "other rows by shape": lambda x: tf.reshape(x, [-1, 1]),
    "a constant": lambda x: tf.zeros([5]),
    "one of two": lambda x: (x, tf.reduce_max(x, 0)),
    "product with itself": lambda x: tf.matmul(x, x, transpose_a=True),
    "row with each row": lambda x: x[:, tf.newaxis] - x,
    "random": tf.random.shuffle,
    "unknown op": lambda x: tf.map_fn(lambda row: row, x),
    "sorted": lambda x: tf.sort(x, axis=0),
    "variable": lambda x: x + WEIGHTS.assign_add(tf.zeros([3, 1]))[0],
    "nested": tf.function(lambda x: x - tf.reduce_mean(x, 0)),
}


def works_by_rows(function: Callable[[Any], Any], rows: tf.data.Dataset = MATRICES) -> bool:
    main = main_scope(serialize(rows.batch(4).map(function)))
    assert main.output is not None
    assert kind(main.output.op) in MAPS
    return is_row_map(main, main.output)


@pytest.mark.parametrize("name", BY_ROWS)
def test_a_function_that_works_row_by_row_is_found(name: str) -> None:
    assert works_by_rows(BY_ROWS[name])
    together = list(MATRICES.batch(4).map(BY_ROWS[name]).unbatch())
    alone = list(MATRICES.batch(1).map(BY_ROWS[name]).unbatch())
    for one, other in zip(together, alone, strict=True):
        tf.nest.map_structure(tf.debugging.assert_near, one, other)


@pytest.mark.parametrize("name", NOT_BY_ROWS)
def test_a_function_that_may_mix_rows_is_not_found(name: str) -> None:
    assert not works_by_rows(NOT_BY_ROWS[name])


def test_parsing_dense_features_works_row_by_row() -> None:
    examples = tf.data.Dataset.from_tensor_slices([b"a", b"b"])
    assert works_by_rows(lambda x: tf.io.parse_example(x, PARSED), examples)
    sparse = {"a": tf.io.VarLenFeature(tf.float32)}
    assert not works_by_rows(lambda x: tf.io.parse_example(x, sparse), examples)
