"""Rows keep their values when they are encoded, cut, joined and decoded to tensors."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.graph import type_specs as tf_spec
from distributed_input.rows import runs
from distributed_input.rows.decode import Ragged, Sparse, decode
from distributed_input.rows.elements import ElementSpec, Leaf, numpy_dtype
from distributed_input.rows.encode import make_encoder
from distributed_input.trainer.tensorflow import decode as tf_decode
from tests.unit.distributed_input.rowcases import check_run, concat_runs, draw_rows, specs


def ragged_parts(leaf: Leaf, rows: list[Any]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the flat values and the splits of all levels of a list of rows."""
    splits = []
    for _ in range(leaf.ragged_rank + 1):
        splits.append(np.cumsum([0] + [len(row) for row in rows]).astype(leaf.row_splits_dtype))
        rows = [item for row in rows for item in row]
    inner = tuple(size or 0 for size in leaf.inner_shape)
    dtype = object if leaf.is_string else None
    if not rows:
        kind = object if leaf.is_string else numpy_dtype(leaf.dtype)
        return np.empty((0, *inner), kind), splits
    out = np.empty((len(rows), *inner), dtype or np.asarray(rows[0]).dtype)
    for i, row in enumerate(rows):
        out[i] = row
    return out, splits


def batch_value(leaf: Leaf, rows: list[Any]) -> Any:
    """Return the rows of a leaf as one tensor."""
    dtype = tf.dtypes.as_dtype(leaf.dtype)
    if leaf.kind in ("dense", "unranked"):
        return tf.stack([tf.constant(row, dtype, shape=row.shape) for row in rows])
    if leaf.kind == "ragged":
        flat, splits = ragged_parts(leaf, rows)
        flat = tf.constant(flat, dtype, shape=flat.shape)
        return tf.RaggedTensor.from_nested_row_splits(flat, splits)
    indices = np.concatenate(
        [np.column_stack([np.full(len(r[1]), i), r[0]]) for i, r in enumerate(rows)]
    )
    values = np.concatenate([r[1] for r in rows])
    shape = np.max([r[2] for r in rows], axis=0)
    return tf.SparseTensor(
        indices.astype(np.int64), tf.constant(values, dtype), [len(rows), *shape]
    )


def row_value(leaf: Leaf, row: Any) -> Any:
    """Return one row of a leaf, without a leading dimension."""
    if leaf.kind == "sparse":
        return tf.SparseTensor(row[0], tf.constant(row[1], leaf.dtype, shape=row[1].shape), row[2])
    value = batch_value(leaf, [row])
    return value[0] if leaf.kind in ("dense", "unranked") else value.values


def plain(value: Any) -> Any:
    """Convert a value to lists that can be compared."""
    if isinstance(value, (Ragged, tf.RaggedTensor)):
        if isinstance(value, tf.RaggedTensor):
            value = Ragged(value.flat_values.numpy(), tuple(value.nested_row_splits))
        return [plain(value.values), [np.asarray(level).tolist() for level in value.row_splits]]
    if isinstance(value, (Sparse, tf.SparseTensor)):
        parts = (value.indices, value.values, value.dense_shape)
        return [plain(part) for part in parts]
    array = value.numpy() if isinstance(value, tf.Tensor) else value
    array = np.asarray(array, object if isinstance(array, bytes) else None)
    return [str(array.dtype), array.shape, array.tolist()]


def tables(draw: Any, spec: ElementSpec, count: int) -> list[list[Any]]:
    return [draw_rows(draw, leaf, count) for leaf in spec.leaves]


@settings(max_examples=100, deadline=None)
@given(st.data(), specs(), st.integers(1, 5))
def test_encoding_cutting_joining_and_decoding_keep_the_rows(
    data: Any, spec: ElementSpec, count: int
) -> None:
    table = tables(data.draw, spec, count)
    values = [batch_value(leaf, rows) for leaf, rows in zip(spec.leaves, table, strict=True)]
    rows, buffers = make_encoder(spec, True)(spec.unflatten(values))
    assert rows == count
    check_run(spec.columns, rows, buffers)
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=3)))
    spans = list(pairwise([0, *cuts, count]))
    parts = [runs.slice_run(spec.columns, buffers, a, b) for a, b in spans]
    for part, (a, b) in zip(parts, spans, strict=True):
        check_run(spec.columns, b - a, part)
    joined = concat_runs(parts)
    assert [b.tobytes() for b in joined] == [b.tobytes() for b in buffers]
    result = spec.flatten(decode(spec, rows, joined))
    assert [plain(value) for value in result] == [plain(value) for value in values]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data(), specs(), st.integers(0, 3), st.booleans(), st.booleans())
def test_tensors_have_the_users_structure(
    data: Any, spec: ElementSpec, count: int, rows_mode: bool, static: bool
) -> None:
    table = tables(data.draw, spec, count if rows_mode else 1)
    if not rows_mode:
        values = [row_value(leaf, rows[0]) for leaf, rows in zip(spec.leaves, table, strict=True)]
        _, buffers = make_encoder(spec, False)(spec.unflatten(values))
    elif count:
        values = [batch_value(leaf, rows) for leaf, rows in zip(spec.leaves, table, strict=True)]
        _, buffers = make_encoder(spec, True)(spec.unflatten(values))
    else:
        values, buffers = [], [np.empty(0, np.uint8)] * spec.buffer_count
    size = count if rows_mode and static else None
    leading = (size,) if rows_mode else ()
    arrays = tf_decode.components(spec, count if rows_mode else None, buffers)
    packed = tf_decode.from_arrays(lambda: iter([arrays]), spec, leading)
    assert packed.element_spec == tf_spec.to_tf(spec, rows_mode, size)
    (element,) = packed
    got = spec.flatten(element)
    if values:
        assert [plain(value) for value in got] == [plain(value) for value in values]
    else:
        assert all((v.shape[0] or 0) == 0 for v in got)


@pytest.mark.parametrize("structure", [[0, 1], (0, [1]), {"a": (0, None), "b": 1}])
def test_lists_and_none_have_the_structure_of_a_map(structure: Any) -> None:
    leaves = Leaf("a", "dense", "float32", ()), Leaf("b", "dense", "int64", (2,))
    spec = ElementSpec(structure, leaves)
    arrays = np.zeros(3, np.float32), np.ones((3, 2), np.int64)
    dataset = tf_decode.from_arrays(lambda: iter([arrays]), spec, (None,))
    mapped = tf.data.Dataset.from_tensors(arrays).map(lambda *parts: spec.unflatten(parts))
    (element,), (expected,) = dataset, mapped
    tf.nest.map_structure(np.testing.assert_array_equal, element, expected)


@pytest.mark.parametrize("rows", [3, None])
@pytest.mark.parametrize(
    "structure",
    [(0, 1), {"a": 0, "b": 1}, ({"a": 0}, 1), [0, 1], (0, [1]), {"a": (0, None), "b": 1}],
)
def test_stacked_batches_are_split_in_the_user_structure(structure: Any, rows: int | None) -> None:
    leaves = Leaf("a", "dense", "float32", ()), Leaf("b", "dense", "int64", (2,))
    spec = ElementSpec(structure, leaves)
    one, other = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(12).reshape(2, 3, 2)
    dataset = tf_decode.from_arrays(lambda: iter([(one, other)]), spec, (rows,), stacked=True)
    batches = tf_decode.from_arrays(lambda: zip(one, other, strict=True), spec, (rows,))
    assert dataset.element_spec == batches.element_spec
    for found, expected in zip(dataset, batches, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, found, expected)


def test_dense_numbers_are_views_from_tensor_to_tensor() -> None:
    spec = ElementSpec(0, (Leaf("", "dense", "float32", (4,)),))
    tensor = tf.random.uniform([8, 4])
    _, (buffer,) = make_encoder(spec, True)(tensor)
    assert buffer.ctypes.data == tensor.__array__().ctypes.data
    owner = np.zeros(8 * 16, np.uint8)
    (array,) = tf_decode.components(spec, 8, [owner])
    assert array.ctypes.data == owner.ctypes.data
    base = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert base is owner


def test_a_buffer_outlives_its_tensor() -> None:
    spec = ElementSpec(0, (Leaf("", "dense", "int64", ()),))
    _, (buffer,) = make_encoder(spec, True)(tf.range(1000, dtype=tf.int64))
    _ = [tf.zeros([1000], tf.int64) for _ in range(50)]
    assert buffer.view(np.int64).tolist() == list(range(1000))


@pytest.mark.parametrize(
    ("leaf", "value", "message"),
    [
        (("a", "dense", "float32", (2,)), np.zeros((3, 2)), "is float64, expected float32"),
        (("a", "dense", "float32", (2,)), np.zeros((3, 4), np.float32), "expected a batch of rows"),
        (("a", "dense", "float32", ()), np.float32(1), "expected a batch of rows"),
        (("a", "dense", "string", ()), np.zeros(3), "is float64, expected strings"),
        (("a", "dense", "int8", (None,)), tf.ragged.constant([[1]], tf.int8, 1), None),
        (("a", "dense", "int8", (1,)), tf.ragged.constant([[1]], tf.int8, 1), "is ragged"),
        (("a", "ragged", "int8", (None, None), 1), tf.ragged.constant([[1]], tf.int8), "1 ragged"),
        (("a", "sparse", "int8", (2,)), np.zeros((3, 2), np.int8), "expected a sparse tensor"),
        (("a", "sparse", "int8", (2,)), tf.sparse.eye(3, 3, dtype=tf.int8), "expected a batch"),
    ],
)
def test_a_value_that_does_not_fit_the_spec_is_named(
    leaf: tuple, value: Any, message: str | None
) -> None:
    encode = make_encoder(ElementSpec({"a": 0}, (Leaf(*leaf),)), True)
    if message is None:
        encode({"a": value})
        return
    with pytest.raises(SpecError, match=message) as caught:
        encode({"a": value})
    assert "component 'a'" in str(caught.value)
