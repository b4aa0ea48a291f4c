"""Rows in batches are the same as single rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.encode import make_encoder
from distributed_input.tfdata.batching import batch_rows, can_batch, with_batch_size
from distributed_input.tfdata.graph import serialization
from distributed_input.tfdata.graph.canonical import serialize
from distributed_input.tfdata.type_specs import from_tf
from tests.unit.distributed_input.rowcases import concat_runs

Data: TypeAlias = tf.data.Dataset
ROWS = Data.range(7)
PAIRS = Data.range(23).map(lambda x: (x, tf.fill([3], x)))


def run_of(dataset: Data, spec: ElementSpec, batched: bool) -> list[bytes]:
    encode = make_encoder(spec, batched)
    return [buffer.tobytes() for buffer in concat_runs([encode(it)[1] for it in dataset])]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS,
        lambda: ROWS.map(lambda x: {"s": tf.fill([2, 2], tf.strings.as_string(x)), "n": x}),
        lambda: ROWS.map(tf.range),
        lambda: ROWS.map(lambda x: tf.strings.as_string(tf.range(x))),
        lambda: ROWS.map(lambda x: (tf.ones([x, 2, 3]), x)),
        lambda: ROWS.map(lambda x: tf.RaggedTensor.from_row_lengths(tf.range(x), [0, x])),
        lambda: Data.from_tensor_slices(tf.ragged.constant([[1], [], [2, 3]])),
        lambda: Data.from_tensor_slices(tf.ragged.constant([[["a"], []], [], [["b", "c"]]])),
        lambda: ROWS.map(lambda x: tf.sparse.from_dense(tf.one_hot(x, 5))),
        lambda: ROWS.map(lambda x: (x, None)),
    ],
)
def test_batched_rows_encode_to_the_same_run(make: Callable[[], Data]) -> None:
    dataset = make()
    spec = from_tf(dataset.element_spec)
    assert can_batch(spec, False)
    batches = batch_rows(dataset, spec, False, 3)
    assert run_of(batches, spec, True) == run_of(dataset, spec, False)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS.map(lambda x: tf.ones([2, x])),
        lambda: ROWS.map(lambda x: tf.sparse.from_dense(tf.ones([x]))),
        lambda: ROWS.map(lambda x: tf.io.parse_tensor(tf.io.serialize_tensor(x), tf.int64)),
    ],
)
def test_rows_that_a_batch_would_change_are_not_batched(make: Callable[[], Data]) -> None:
    assert not can_batch(from_tf(make().element_spec), False)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_rebatching_keeps_the_rows(size: int) -> None:
    rows = ROWS.map(lambda x: {"s": tf.fill([2], tf.strings.as_string(x)), "n": x})
    dataset, spec = rows.batch(size), from_tf(rows.element_spec)
    assert can_batch(spec, True)
    together = batch_rows(dataset, spec, True, 3)
    assert run_of(together, spec, True) == run_of(rows, spec, False)
    sizes = [len(element["n"]) for element in together]
    assert sizes == [3, 3, 1] or size > 3  # the batch's own size is not known to the dataset


@pytest.mark.parametrize(
    "make", [lambda ragged: ragged, lambda ragged: ragged.rebatch(2), lambda ragged: ragged.skip(0)]
)
def test_batches_of_scalars_that_are_ragged_rows_are_rebatched(
    make: Callable[[Data], Data],
) -> None:
    ragged = Data.from_tensor_slices(tf.ragged.constant([[0], [], [1, 2, 3, 4], [5, 6]]))
    scalar = from_tf(tf.TensorSpec([], tf.int32))
    together = batch_rows(make(ragged), scalar, True, 3)
    rows = Data.from_tensor_slices(tf.range(7))
    assert run_of(together, scalar, True) == run_of(rows, scalar, False)


def test_large_batches_are_not_rebatched() -> None:
    dataset = ROWS.batch(4, drop_remainder=True)
    spec = from_tf(ROWS.element_spec)
    assert batch_rows(dataset, spec, True, 4) is dataset
    assert batch_rows(dataset, spec, True, 5) is not dataset


def test_batches_of_rows_with_different_shapes_are_not_rebatched() -> None:
    padded = ROWS.map(tf.range).padded_batch(2)
    assert not can_batch(from_tf(padded.element_spec).unbatched(), True)


def test_batches_with_none_are_rebatched() -> None:
    dataset = ROWS.batch(2, drop_remainder=True).map(lambda x: (x, None))
    row = from_tf(dataset.element_spec).unbatched()
    assert [len(x) for x, _ in batch_rows(dataset, row, True, 3)] == [3, 3]


def with_options(data: Any) -> Any:
    options = tf.data.Options()
    options.deterministic = True
    return data.with_options(options)


ENDS: dict[str, Callable[[Any, int], Any]] = {
    "batch": lambda data, size: data.batch(size),
    "prefetch": lambda data, size: data.batch(size).prefetch(2),
    "options": lambda data, size: with_options(data.batch(size).prefetch(1)),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda data: data,
    "drop_remainder": lambda data: data.batch(4, drop_remainder=True),
    "a map of batches": lambda data: data.batch(4).map(lambda x, y: (x + tf.reduce_sum(x), y)),
    "a padded batch": lambda data: data.padded_batch(4),
    "batches of files": lambda data: data.window(4).flat_map(lambda x, y: x.batch(2)),
}


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(list(ENDS)), st.integers(1, 30), st.integers(1, 30))
def test_rows_stay_and_elements_have_the_size(end: str, before: int, rows: int) -> None:
    data = ENDS[end](PAIRS, before)
    graph = with_batch_size(serialize(data), rows)
    assert graph is not None
    elements = [x.numpy().tolist() for x, _ in serialization.instantiate(graph, data.element_spec)]
    assert [row for element in elements for row in element] == list(range(23))
    assert all(len(element) == rows for element in elements[:-1])
    assert 0 < len(elements[-1]) <= rows


@pytest.mark.parametrize("name", OTHERS)
def test_other_datasets_keep_their_elements(name: str) -> None:
    assert with_batch_size(serialize(OTHERS[name](PAIRS)), 7) is None


def test_the_graph_itself_does_not_change() -> None:
    graph = serialize(PAIRS.batch(4))
    before = graph.SerializeToString(deterministic=True)
    assert with_batch_size(graph, 7) is not None
    assert graph.SerializeToString(deterministic=True) == before
