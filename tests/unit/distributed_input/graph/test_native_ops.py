"""The native op gives the bytes and the hashes that the Python code gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.graph import batching, native_ops, type_specs
from distributed_input.rows.digest import row_hashes
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.encode import make_encoder
from distributed_input.worker.datasets.split_iterator import iterate_dataset

pytestmark = pytest.mark.skipif(
    native_ops.library() is None, reason="no library: there is no C++ compiler"
)

DTYPES = ["int8", "int32", "int64", "float16", "bfloat16", "float64", "bool", "complex128"]


@st.composite
def batches(draw: Any) -> dict[str, Any]:
    """Draw a batch with components of all kinds."""
    kinds = draw(
        st.lists(st.sampled_from(["dense", "padded", "ragged", "sparse"]), min_size=1, max_size=3)
    )
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    rows, longest = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    found = {}
    for index, kind in enumerate(kinds):
        dtype = draw(st.sampled_from([*DTYPES, "string", "string"]))
        shape = draw(st.lists(st.sampled_from([1, 2, 3, 5, 130]), max_size=2))
        found[str(index)] = component(
            rng, kind, dtype, rows, shape, draw(st.integers(1, 3)), longest
        )
    return found


def component(
    rng: Any, kind: str, dtype: str, rows: int, shape: list[int], depth: int, longest: int
) -> Any:
    if kind == "dense":
        return values(rng, dtype, [rows, *shape])
    if kind == "padded":
        return values(rng, dtype, [rows, longest, *shape])
    if kind == "ragged":
        lengths, count = [], rows
        for _ in range(depth):
            lengths.append(rng.integers(0, longest + 1, count))
            count = int(lengths[-1].sum())
        splits = np.int32 if depth == 1 else np.int64
        flat = values(rng, dtype, [count, *shape])
        return tf.RaggedTensor.from_nested_row_lengths(
            flat, [one.astype(splits) for one in lengths]
        )
    cells = np.argwhere(rng.random([rows, *shape]) < 0.4).reshape(-1, 1 + len(shape))
    return tf.SparseTensor(cells, values(rng, dtype, [len(cells)]), [rows, *shape])


def values(rng: Any, dtype: str, shape: list[int]) -> tf.Tensor:
    count = int(np.prod(shape))
    if dtype == "string":
        sizes = rng.choice([0, 1, 7, 22, 23, 100, 300, 1200], count)
        return tf.reshape(tf.constant([rng.bytes(int(n)) for n in sizes], tf.string), shape)
    if dtype == "bool":
        return tf.constant(rng.random(shape) < 0.5)
    return tf.cast(rng.integers(-100, 100, shape), dtype)


def loose_spec(batch: dict[str, Any]) -> dict[str, tf.TypeSpec]:
    """Return the spec of a batch without its number of rows."""
    spec = {name: tf.type_spec_from_value(value) for name, value in batch.items()}
    return {
        name: tf.TensorSpec([None, *one.shape[1:]], one.dtype)
        if isinstance(one, tf.TensorSpec)
        else one
        for name, one in spec.items()
    }


def parts_of(value: Any) -> list[tf.Tensor]:
    """Return the tensors that `batching.join` returns for a component."""
    if isinstance(value, tf.RaggedTensor):
        return [*value.nested_row_splits, value.flat_values]
    if isinstance(value, tf.SparseTensor):
        ends = tf.constant([0, value.values.shape[0]], tf.int64)
        return [ends, value.indices, value.values, value.dense_shape[tf.newaxis]]
    return [value]


def packed(row: ElementSpec, specs: Any, batch: Any) -> native_ops.EncodedRows:
    """Return what the op makes of a batch."""
    plan = native_ops.plan_of(row, specs)
    assert plan is not None
    parts = [part for value in tf.nest.flatten(batch) for part in parts_of(value)]
    result = native_ops.library().distributed_input_pack(components=parts, plan=list(plan))
    refuse: Any = lambda _: (-1, [])  # noqa: E731
    return native_ops.unpack(refuse, native_ops.passed_of(row, specs), [result, *parts])


def as_bytes(run: Any) -> tuple[int, list[bytes]]:
    return run[0], [buffer.tobytes() for buffer in run[1]]


def check(spec: Any, batch: Any) -> None:
    """Compare the op with the Python code."""
    row = type_specs.from_tf(spec).unbatched()
    expected = make_encoder(row, True)(batch)
    found = packed(row, tf.nest.flatten(spec), batch)
    assert as_bytes(found) == as_bytes(expected)
    hashes = row_hashes([column.row_bytes for column in row.columns], expected[1], expected[0])
    assert found.hashes is not None
    assert found.hashes.tolist() == hashes.tolist()


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # QEMU
@given(batches())
def test_packs_any_rows_as_python_does(batch: dict[str, Any]) -> None:
    check(loose_spec(batch), batch)


def test_packs_rows_of_unknown_sizes() -> None:
    for dtype in ("string", "int16"):
        batch = values(np.random.default_rng(0), dtype, [4, 3, 2])
        check(tf.TensorSpec([None, None, 2], batch.dtype), batch)


def test_packs_a_dense_leaf_in_a_ragged_batch() -> None:
    row = type_specs.from_tf(tf.TensorSpec([None, 2], tf.string))
    spec = tf.RaggedTensorSpec([None, None, 2], tf.string, 1)
    flat = values(np.random.default_rng(0), "string", [5, 2])
    batch = tf.RaggedTensor.from_row_lengths(flat, [2, 0, 3])
    found = packed(row, [spec], batch)
    assert as_bytes(found) == as_bytes(make_encoder(row, True)(batch))


def test_parallel_calls_give_the_rows_of_one() -> None:
    """The sanitizer for threads sees only what runs in several at the same time."""
    numbers = tf.data.Dataset.range(400)
    rows = numbers.map(lambda row: {"a": tf.range(row % 7), "s": tf.strings.as_string(row)})
    batches = rows.ragged_batch(8)
    row = type_specs.from_tf(batches.element_spec).unbatched()
    found = []
    for calls in (0, 8):
        joined, leaves = batching.join(batches, 2, calls)
        packed = native_ops.pack(joined, row, batching.component_specs(batches), leaves, calls)
        assert packed is not None
        dataset, encode = packed
        encoded = [encode(list(element)) for element in dataset]
        found.append([(one.rows, [bytes(part) for part in one.buffers]) for one in encoded])
    assert sum(count for count, _ in found[0]) == 400
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [*range(300), 511, 512, 513, 1023, 1024, 1025, 4096, 99_999])
def test_hashes_are_those_of_xxhash(size: int) -> None:
    """Strings have a variable width. Their lengths are the column before."""
    data = np.random.default_rng(size).bytes(size)
    spec = tf.RaggedTensorSpec([None, None], tf.uint8, 1)
    row = type_specs.from_tf(spec).unbatched()
    batch = tf.RaggedTensor.from_row_lengths(tf.io.decode_raw(data, tf.uint8), [size])
    hashes = packed(row, [spec], batch).hashes
    assert hashes is not None
    assert hashes.tolist() == [xxhash.xxh3_64_intdigest(data)]


def test_an_element_that_the_op_refuses_is_encoded_in_python() -> None:
    unsorted = tf.SparseTensor([[1, 0], [0, 2]], [1.0, 2.0], [2, 3])
    spec = tf.type_spec_from_value(unsorted)
    row = type_specs.from_tf(spec).unbatched()
    assert packed(row, [spec], unsorted).rows == -1
    dataset = tf.data.Dataset.from_tensors(unsorted)
    split = iterate_dataset(dataset, row, True, 1, 2, "dataset")
    assert split.encode is not None
    (element,) = split.elements
    run = split.encode(element)
    assert as_bytes(run) == as_bytes(make_encoder(row, True)(unsorted))
    assert run.hashes is None


def test_components_with_other_numbers_of_rows_are_an_error() -> None:
    spec = {"a": tf.TensorSpec([None], tf.int64), "b": tf.TensorSpec([None], tf.int64)}
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([{"a": [1, 2], "b": [3]}]), output_signature=spec
    )
    row = type_specs.from_tf(spec).unbatched()
    split = iterate_dataset(dataset, row, True, 0, None, "dataset")
    assert split.encode is not None
    with pytest.raises(SpecError, match="component 'b' has 1 rows and component 'a' has 2"):
        split.encode(next(split.elements))


@pytest.mark.parametrize(
    "splits", [[0, 3], [1, 2], [0, 2, 1, 2], [0]], ids=["long", "begin", "falls", "rows"]
)
def test_refuses_row_splits_that_do_not_fit(splits: list[int]) -> None:
    spec = tf.RaggedTensorSpec([None, None], tf.string, 1)
    row = type_specs.from_tf(spec).unbatched()
    batch = tf.RaggedTensor.from_row_splits(["a", "b"], splits, validate=False)
    assert packed(row, [spec], batch).rows == -1


@pytest.mark.parametrize("index", [-1, 2, 1 << 62])
def test_refuses_rows_outside_of_a_sparse_batch(index: int) -> None:
    batch = tf.SparseTensor([[0, 0], [index, 0]], [1.0, 2.0], [2, 3])
    spec = tf.SparseTensorSpec([None, 3], tf.float32)
    row = type_specs.from_tf(spec).unbatched()
    assert packed(row, [spec], batch).rows == -1


@pytest.mark.parametrize("plan", [[0], [9, 4, 0, 1, 0], [0, 4, 0, 1, 3, 1], [0, 4, 0, 1, -1]])
def test_refuses_a_plan_that_is_not_valid(plan: list[int]) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="plan"):
        native_ops.library().distributed_input_pack(components=[tf.constant([1])], plan=plan)


def test_joined_batches_and_all_splits_have_the_same_rows_without_the_op() -> None:
    rng = np.random.default_rng(1)
    batch = {
        "ids": values(rng, "int64", [4]),
        "text": values(rng, "string", [4, 2]),
        "tokens": component(rng, "ragged", "int32", 4, [], 2, 3),
        "cells": component(rng, "sparse", "string", 4, [9], 1, 0),
    }
    dataset = tf.data.Dataset.from_tensors(batch).repeat(5)
    row = type_specs.from_tf(dataset.element_spec).unbatched()
    widths = [column.row_bytes for column in row.columns]

    def read() -> list[Any]:
        split = iterate_dataset(dataset, row, True, 12, None, "dataset")
        in_python = make_encoder(row, True, split.leaves_of)
        encode = split.encode or (lambda element: native_ops.EncodedRows(*in_python(element)))
        runs = [encode(element) for element in split.elements]
        assert all((run.hashes is None) == (split.encode is None) for run in runs)
        return [
            (*as_bytes(run), row_hashes(widths, run.buffers, run.rows).tolist()) for run in runs
        ]

    found = read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_ops, "library", lambda: None)
        assert found == read()
    assert [rows for rows, *_ in found] == [12, 8]


def test_off_by_its_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRIBUTED_INPUT_NATIVE_OPS", "0")
    assert native_ops.library.__wrapped__() is None
