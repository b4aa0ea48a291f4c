"""Rows in batches, and rows of joined batches, are the same as single rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.graph.batching import batch_rows, can_batch, can_join, join, with_batch_size
from distributed_input.graph.definition import serialization
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.datasets import main_scope
from distributed_input.graph.type_specs import from_tf
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.encode import make_encoder
from tests.unit.distributed_input.rowcases import concat_runs

Data: TypeAlias = tf.data.Dataset
ROWS = Data.range(7)
PAIRS = Data.range(23).map(lambda x: (x, tf.fill([3], x)))


def run_of(
    dataset: Data, spec: ElementSpec, batched: bool = True, leaves_of: Any = None
) -> list[bytes]:
    encode = make_encoder(spec, batched, leaves_of)
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


@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float8_e4m3fn", "int4"])
@pytest.mark.parametrize("batched", [False, True])
def test_types_that_tensorflow_cannot_batch_are_not_batched(dtype: str, batched: bool) -> None:
    assert not can_batch(from_tf(tf.TensorSpec([2], dtype)), batched)


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


def checked(x: Any, y: Any) -> Any:
    tf.debugging.assert_less(tf.size(x), 5)
    return x, y


ENDS: dict[str, Callable[[Any, int], Any]] = {
    "batch": lambda data, size: data.batch(size),
    "prefetch": lambda data, size: data.batch(size).prefetch(2),
    "options": lambda data, size: with_options(data.batch(size).prefetch(1)),
    "a parallel batch": lambda data, size: data.batch(size, num_parallel_calls=2),
    "maps": lambda data, size: (
        data.batch(size)
        .map(lambda x, y: (x + 0, y * 3), num_parallel_calls=2)
        .prefetch(1)
        .map(lambda x, y: (x, tf.cast(y[:, :2], tf.float32) / 7.0))
    ),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda data: data,
    "drop_remainder": lambda data: data.batch(4, drop_remainder=True),
    "a map with an inexact result": lambda data: data.batch(4).map(
        lambda x, y: (x, tf.exp(tf.cast(y, tf.float32)))
    ),
    "a map that checks the batch": lambda data: data.batch(4).map(checked),
    "a map that sets the number of rows": lambda data: data.batch(1).map(
        lambda x, y: (tf.ensure_shape(x, [1]), y)
    ),
    "a Python function": lambda data: data.batch(4).map(
        lambda x, y: (tf.numpy_function(lambda x: x, [x], tf.int64), y)
    ),
    "random values": lambda data: data.batch(4).map(
        lambda x, y: (x + tf.random.uniform([1], maxval=9, dtype=tf.int64), y)
    ),
    "a take of batches": lambda data: data.batch(4).take(2),
    "a shuffle of batches": lambda data: data.batch(4).shuffle(2),
    "batches that are repeated": lambda data: data.batch(4).repeat(2),
    "a parallel batch that drops rows": lambda data: data.batch(
        4, drop_remainder=True, num_parallel_calls=2
    ),
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


def test_prefetch_holds_as_many_rows_as_before() -> None:
    data = PAIRS.batch(4).prefetch(6).map(lambda x, y: (x, y)).prefetch(tf.data.AUTOTUNE)
    assert prefetched(serialize(data)) == [6, -1]
    assert [prefetched(with_batch_size(serialize(data), rows)) for rows in (2, 12, 100)] == [
        [12, -1],
        [2, -1],
        [1, -1],
    ]


def prefetched(graph: Any) -> list[int]:
    scope = main_scope(graph)
    found = [scope.value(one, 1) for one in scope.chain() if one.op.startswith("Prefetch")]
    return [int(size) for size in reversed(found)]


def test_the_graph_itself_does_not_change() -> None:
    graph = serialize(PAIRS.batch(4))
    before = graph.SerializeToString(deterministic=True)
    assert with_batch_size(graph, 7) is not None
    assert graph.SerializeToString(deterministic=True) == before


ELEVEN = Data.range(11)
NUMBERS = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
    " complex128"
).split()


def ragged(values: str = "int32", splits: str = "int64") -> Data:
    rows = ELEVEN.map(lambda x: tf.cast(tf.range(x % 4), values))
    return rows.ragged_batch(3, row_splits_dtype=tf.dtypes.as_dtype(splits))


def nested(size: int) -> Data:
    rows = ELEVEN.map(lambda x: tf.RaggedTensor.from_row_lengths(tf.range(x), [0, x, 0]))
    return rows.batch(size)


def sparse() -> Data:
    return ELEVEN.map(lambda x: tf.sparse.from_dense(tf.one_hot(x, 20))).batch(3)


def unsorted(batch: tf.Tensor) -> tf.SparseTensor:
    rows = tf.shape(batch, tf.int64)[0]
    last_first = tf.reverse(tf.range(rows), [0])
    return tf.SparseTensor(tf.stack([last_first, last_first], 1), batch, [rows, 3])


def strings() -> Data:
    return ELEVEN.map(lambda x: tf.fill([2], tf.strings.as_string(x * x)))


def with_ragged(rows: Data) -> Data:
    return Data.zip(rows.batch(3), ragged())


CASES: dict[str, Callable[[], Data]] = {
    "ragged": ragged,
    "ragged with int32 splits": lambda: ragged(splits="int32"),
    "ragged twice": lambda: nested(3),
    "ragged strings": lambda: ragged().map(tf.strings.as_string),
    "ragged vectors": lambda: (
        ELEVEN.map(lambda x: tf.ones([x, 2]))
        .ragged_batch(2)
        .map(lambda x: tf.RaggedTensor.from_row_splits(x.values, x.row_splits))
    ),
    "sparse": sparse,
    "sparse, unsorted": lambda: ELEVEN.batch(3).map(unsorted),
    "sparse without values": lambda: ELEVEN.map(lambda _: tf.sparse.from_dense([0, 0])).batch(3),
    "strings": lambda: with_ragged(strings()),
    "string scalars": lambda: with_ragged(ELEVEN.map(lambda x: tf.strings.as_string(10**x))),
    "empty strings": lambda: with_ragged(ELEVEN.map(lambda _: "")),
    "bytes with zeros": lambda: with_ragged(ELEVEN.map(lambda _: b"a\0\xff\0")),
    "several": lambda: Data.zip(
        {"r": ragged(), "s": sparse(), "n": ELEVEN.batch(3), "t": strings().batch(3)}
    ).map(lambda x: (x, None)),
}


@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize("case", CASES)
def test_joined_batches_encode_to_the_same_run(case: str, count: int) -> None:
    batches = CASES[case]()
    row = from_tf(batches.element_spec).unbatched()
    assert can_join(row)
    joined, leaves_of = join(batches, count)
    assert len(list(joined)) == -(-len(list(batches)) // count)
    assert run_of(joined, row, leaves_of=leaves_of) == run_of(batches, row)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_all_types_of_numbers_are_joined(dtype: str) -> None:
    batches = ELEVEN.map(lambda x: tf.cast(tf.range(x), dtype)).ragged_batch(3)
    row = from_tf(batches.element_spec).unbatched()
    joined, leaves_of = join(batches, 2)
    assert run_of(joined, row, leaves_of=leaves_of) == run_of(batches, row)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ELEVEN.batch(3),
        lambda: ELEVEN.map(lambda x: tf.ones([x])).padded_batch(3),
        lambda: ELEVEN.map(lambda x: tf.sparse.from_dense(tf.ones([x]))).batch(1),
        lambda: ELEVEN.map(lambda x: tf.cast(tf.range(x), tf.bfloat16)).ragged_batch(3),
        lambda: ELEVEN.batch(3).map(
            lambda x: tf.io.parse_tensor(tf.io.serialize_tensor(x), x.dtype)
        ),
        lambda: strings().batch(3),
    ],
)
def test_other_batches_stay_as_they_are(make: Callable[[], Data]) -> None:
    assert not can_join(from_tf(make().element_spec).unbatched())


def test_the_functions_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    join(ragged(), 2)
    monkeypatch.setattr(tf, "function", None)
    joined, leaves_of = join(ragged(), 3)
    row = from_tf(ragged().element_spec).unbatched()
    assert run_of(joined, row, leaves_of=leaves_of) == run_of(ragged(), row)


def test_ragged_components_without_ragged_dimensions_stay_as_they_are() -> None:
    vectors = Data.from_tensor_slices(tf.ragged.constant([[1, 2], [2, 2], [3, 1]]))
    assert vectors.element_spec.ragged_rank == 0
    both = Data.zip(vectors, ragged())
    row = from_tf(both.element_spec).unbatched()
    assert not can_join(row, both)


def test_batches_of_a_sparse_component_need_one_shape() -> None:
    def of_width(width: int) -> tf.SparseTensor:
        return tf.sparse.from_dense(tf.ones([1, width]))

    batches = Data.from_tensors(of_width(2)).concatenate(Data.from_tensors(of_width(3)))
    spec = tf.SparseTensorSpec([None, 2], tf.float32)
    variant = tf.data.experimental.to_variant(batches)
    wrong = tf.data.experimental.from_variant(variant, spec)
    joined, leaves_of = join(wrong, 2)
    with pytest.raises(SpecError, match="shapes"):
        run_of(joined, from_tf(spec).unbatched(), leaves_of=leaves_of)
