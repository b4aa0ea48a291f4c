"""Joined batches have the rows of the batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.api.errors import SpecError
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.encode import make_encoder
from distributed_input.tfdata.joined_batches import can_join, join
from distributed_input.tfdata.type_specs import from_tf
from tests.unit.distributed_input.rowcases import concat_runs

Data: TypeAlias = tf.data.Dataset
ROWS = Data.range(11)
NUMBERS = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64"
    " complex128"
).split()


def ragged(values: str = "int32", splits: str = "int64") -> Data:
    rows = ROWS.map(lambda x: tf.cast(tf.range(x % 4), values))
    return rows.ragged_batch(3, row_splits_dtype=tf.dtypes.as_dtype(splits))


def nested(size: int) -> Data:
    rows = ROWS.map(lambda x: tf.RaggedTensor.from_row_lengths(tf.range(x), [0, x, 0]))
    return rows.batch(size)


def sparse() -> Data:
    return ROWS.map(lambda x: tf.sparse.from_dense(tf.one_hot(x, 20))).batch(3)


def unsorted(batch: tf.Tensor) -> tf.SparseTensor:
    rows = tf.shape(batch, tf.int64)[0]
    last_first = tf.reverse(tf.range(rows), [0])
    return tf.SparseTensor(tf.stack([last_first, last_first], 1), batch, [rows, 3])


def strings() -> Data:
    return ROWS.map(lambda x: tf.fill([2], tf.strings.as_string(x * x)))


def with_ragged(rows: Data) -> Data:
    return Data.zip(rows.batch(3), ragged())


CASES: dict[str, Callable[[], Data]] = {
    "ragged": ragged,
    "ragged with int32 splits": lambda: ragged(splits="int32"),
    "ragged twice": lambda: nested(3),
    "ragged strings": lambda: ragged().map(tf.strings.as_string),
    "ragged vectors": lambda: (
        ROWS.map(lambda x: tf.ones([x, 2]))
        .ragged_batch(2)
        .map(lambda x: tf.RaggedTensor.from_row_splits(x.values, x.row_splits))
    ),
    "sparse": sparse,
    "sparse, unsorted": lambda: ROWS.batch(3).map(unsorted),
    "sparse without values": lambda: ROWS.map(lambda _: tf.sparse.from_dense([0, 0])).batch(3),
    "strings": lambda: with_ragged(strings()),
    "string scalars": lambda: with_ragged(ROWS.map(lambda x: tf.strings.as_string(10**x))),
    "empty strings": lambda: with_ragged(ROWS.map(lambda _: "")),
    "bytes with zeros": lambda: with_ragged(ROWS.map(lambda _: b"a\0\xff\0")),
    "several": lambda: Data.zip(
        {"r": ragged(), "s": sparse(), "n": ROWS.batch(3), "t": strings().batch(3)}
    ).map(lambda x: (x, None)),
}


def run_of(elements: Data, spec: ElementSpec, leaves_of: Any = None) -> list[bytes]:
    encode = make_encoder(spec, True, leaves_of)
    return [buffer.tobytes() for buffer in concat_runs([encode(it)[1] for it in elements])]


@pytest.mark.parametrize("count", [1, 2, 3, 10])
@pytest.mark.parametrize("case", CASES)
def test_joined_batches_encode_to_the_same_run(case: str, count: int) -> None:
    batches = CASES[case]()
    row = from_tf(batches.element_spec).unbatched()
    assert can_join(row)
    joined, leaves_of = join(batches, count)
    assert len(list(joined)) == -(-len(list(batches)) // count)
    assert run_of(joined, row, leaves_of) == run_of(batches, row)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_all_types_of_numbers_are_joined(dtype: str) -> None:
    batches = ROWS.map(lambda x: tf.cast(tf.range(x), dtype)).ragged_batch(3)
    row = from_tf(batches.element_spec).unbatched()
    joined, leaves_of = join(batches, 2)
    assert run_of(joined, row, leaves_of) == run_of(batches, row)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS.batch(3),
        lambda: ROWS.map(lambda x: tf.ones([x])).padded_batch(3),
        lambda: ROWS.map(lambda x: tf.sparse.from_dense(tf.ones([x]))).batch(1),
        lambda: ROWS.map(lambda x: tf.cast(tf.range(x), tf.bfloat16)).ragged_batch(3),
        lambda: ROWS.batch(3).map(lambda x: tf.io.parse_tensor(tf.io.serialize_tensor(x), x.dtype)),
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
    assert run_of(joined, row, leaves_of) == run_of(ragged(), row)


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
        run_of(joined, from_tf(spec).unbatched(), leaves_of)
