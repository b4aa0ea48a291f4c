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


EXACT = {
    *("stack", "unstack", "concatenation", "reshape", "transposed", "select"),
    *("strings", "tf.function", "padding"),
}
SPECIAL = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-42, 3e38, 0.1, -7.5]
VALUES = tf.constant([[value * other for other in (1.0, 0.3, -0.7)] for value in SPECIAL * 5])
EXACT_OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x + tf.constant([0.1, 0.2, 0.3]) - x[:, :1],
    "product": lambda x: tf.square(x) * 1.1 / 3.0 / x[:, ::-1],
    "sign": lambda x: (tf.abs(x), -x),
    "comparisons": lambda x: (x > 0.5, x <= 3.0, x != 1.0, tf.math.is_nan(x), tf.math.is_inf(x)),
    "small types": lambda x: tf.cast(x, tf.float16) * 3,
    "integers": lambda x: tf.reduce_sum(tf.maximum(tf.strings.length(tf.as_string(x)), 5) % 4, 1),
}


def works_by_rows(
    function: Callable[[Any], Any], rows: tf.data.Dataset = MATRICES, exact: bool = False
) -> bool:
    main = main_scope(serialize(rows.batch(4).map(function)))
    assert main.output is not None
    assert kind(main.output.op) in MAPS
    return is_row_map(main, main.output, exact)


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


@pytest.mark.parametrize("name", BY_ROWS)
def test_functions_whose_results_are_rounded_otherwise_elsewhere_are_not_exact(name: str) -> None:
    assert works_by_rows(BY_ROWS[name], exact=True) == (name in EXACT)


@pytest.mark.parametrize("name", EXACT_OF_VALUES)
def test_exact_functions_give_the_same_bytes_in_any_batch(name: str) -> None:
    function = EXACT_OF_VALUES[name]
    rows = tf.data.Dataset.from_tensor_slices(VALUES)
    assert works_by_rows(function, rows, exact=True)
    alone = [run(rows, function, size) for size in (1, 3, 8, 45)]
    assert alone == [alone[0]] * 4


def run(rows: tf.data.Dataset, function: Callable[[Any], Any], size: int) -> list[list[bytes]]:
    found = rows.batch(size).map(function).unbatch()
    return [[part.numpy().tobytes() for part in tf.nest.flatten(row)] for row in found]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.cast(x * 300, tf.uint8),  # a number that the type does not have
        lambda x: tf.cast(x, tf.bfloat16),
        lambda x: tf.io.decode_raw(tf.as_string(x[:, 0]), tf.uint8)[:, :1],  # of equal lengths
    ],
)
def test_conversions_that_depend_on_the_place_or_the_batch_are_not_exact(
    function: Callable[[Any], Any],
) -> None:
    rows = tf.data.Dataset.from_tensor_slices(VALUES)
    assert works_by_rows(function, rows)
    assert not works_by_rows(function, rows, exact=True)


def test_a_feature_of_unknown_size_is_padded_to_the_longest_row() -> None:
    def parse(texts: Any) -> Any:
        feature = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
        return tf.io.parse_example(texts, {"x": feature})["x"]

    texts = tf.data.Dataset.from_tensor_slices(["", ""])
    assert not works_by_rows(parse, texts)


def test_a_function_that_checks_its_batch_is_not_exact() -> None:
    def checked(x: Any) -> Any:
        tf.debugging.assert_less(tf.shape(x)[0], 5)
        return x + 1.0

    assert works_by_rows(checked)
    assert not works_by_rows(checked, exact=True)


def test_complex_numbers_are_exact_only_if_they_are_moved() -> None:
    rows = MATRICES.map(lambda x: tf.complex(x, x))
    assert works_by_rows(lambda x: tf.tile(x, [1, 2]), rows, exact=True)
    assert not works_by_rows(lambda x: x * x, rows, exact=True)


def test_a_function_is_checked_once_and_again_if_a_function_that_it_calls_differs() -> None:
    for name in ("tf.function", "nested"):
        function = {**BY_ROWS, **NOT_BY_ROWS}[name]
        found = [works_by_rows(lambda x, called=function: called(x)) for _ in range(2)]
        assert found == [name in BY_ROWS] * 2
