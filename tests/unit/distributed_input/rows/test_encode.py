"""Elements of numpy arrays become runs in the layout of their columns; errors name the leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.decode import Ragged, Sparse, decode
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.encode import make_encoder, zero_rows
from distributed_input.trainer.tensorflow.decode import components, pack
from tests.unit.distributed_input.rowcases import (
    check_run,
    concat_runs,
    draw_rows,
    leaves,
    specs,
)


def spec_of(*leaf: Any) -> ElementSpec:
    return ElementSpec({"a": 0}, (Leaf("a", *leaf),))


@given(
    st.data(),
    leaves("a").filter(lambda leaf: leaf.kind in ("dense", "unranked")),
    st.integers(1, 4),
)
def test_a_batch_and_its_single_rows_are_the_same_run(data: Any, leaf: Leaf, count: int) -> None:
    spec = ElementSpec(0, (leaf,))
    rows = draw_rows(data.draw, leaf, count)
    total, batch = make_encoder(spec, True)(np.stack(rows))
    assert total == count
    check_run(spec.columns, count, batch)
    single = [make_encoder(spec, False)(row)[1] for row in rows]
    assert [b.tobytes() for b in concat_runs(single)] == [b.tobytes() for b in batch]


def test_numbers_are_not_copied() -> None:
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    rows, (buffer,) = make_encoder(spec_of("dense", "float32", (4,)), True)({"a": values})
    assert rows == 3
    assert np.shares_memory(buffer, values)


def test_the_layout_of_a_ragged_leaf() -> None:
    spec = spec_of("ragged", "int16", (None, None), 1)
    value = Ragged(np.array([1, 2, 3], np.int16), (np.array([0, 2, 2]), np.array([0, 1, 3])))
    rows, buffers = make_encoder(spec, True)({"a": value})
    lengths_bytes, lengths, values_bytes, values = buffers
    assert rows == 2
    assert lengths_bytes.view(np.uint32).tolist() == [8, 0]
    assert lengths.view(np.int32).tolist() == [1, 2]
    assert values_bytes.view(np.uint32).tolist() == [6, 0]
    assert values.view(np.int16).tolist() == [1, 2, 3]


def test_the_layout_of_an_unranked_leaf() -> None:
    spec = spec_of("unranked", "int16", ())
    rows, buffers = make_encoder(spec, True)({"a": np.zeros((2, 3, 1), np.int16)})
    assert rows == 2
    assert [buffer.view(np.int32).tolist() for buffer in buffers[:3]] == [
        [8, 8],
        [3, 1] * 2,
        [6, 6],
    ]
    assert buffers[3].size == 12


def test_a_sparse_batch_in_any_order_is_sorted_by_row() -> None:
    spec = spec_of("sparse", "int64", (4,))
    value = Sparse(np.array([[1, 3], [0, 2]]), np.array([13, 2]), np.array([2, 4]))
    rows, buffers = make_encoder(spec, True)({"a": value})
    decoded = decode(spec, rows, buffers)["a"]
    assert decoded.indices.tolist() == [[0, 2], [1, 3]]
    assert decoded.values.tolist() == [2, 13]


def test_text_is_encoded_as_utf_8() -> None:
    _, buffers = make_encoder(spec_of("dense", "string", (2,)), False)({"a": ["é", b"x"]})
    assert buffers[0].view(np.uint32).tolist() == [2, 1]
    assert buffers[-1].tobytes() == "éx".encode()


def test_numbers_in_another_byte_order_are_converted() -> None:
    value = np.array([1, 2], ">i4")
    _, (buffer,) = make_encoder(spec_of("dense", "int32", ()), True)({"a": value})
    assert buffer.view("<i4").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("leaf", "value", "message"),
    [
        (("dense", "int8", ()), "many", r"is str \('many'\), expected int8"),
        (("dense", "int8", ()), np.zeros(2, np.int16), "is int16, expected int8. Cast it"),
        (("dense", "int8", (2,)), np.zeros((3, 4), np.int8), "expected a batch of rows"),
        (("dense", "string", ()), [b"a", 1], r"is int \(1\), expected strings"),
        (("dense", "string", ()), ["\udcff"], "has no UTF-8 encoding.* os.fsencode"),
        (("unranked", "int8", ()), np.int8(1), "is a scalar, expected a batch of rows"),
        (("ragged", "int8", (None,)), np.zeros((1, 2, 2), np.int8), "expected 1"),
        (("sparse", "int8", (2,)), np.zeros((1, 2), np.int8), "expected a sparse tensor"),
        (
            ("sparse", "int8", (2,)),
            Sparse(np.array([[0, 0.5]]), np.zeros(1, np.int8), np.array([1, 2])),
            "indices of type float64",
        ),
    ],
)
def test_a_value_that_does_not_match_is_refused(leaf: tuple, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        make_encoder(spec_of(*leaf), True)({"a": value})
    assert "component 'a'" in str(caught.value)


# Rows of zeros.


def block_of(rows: int, buffers: list[Any]) -> RowBlock:
    return RowBlock(0, rows, tuple(buffers), np.zeros(rows, np.uint64))


@given(
    st.data(),
    leaves("a").filter(lambda leaf: leaf.kind in ("dense", "unranked")),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_a_batch_is_filled_up_with_zeros_of_its_shape(
    data: Any, leaf: Leaf, rows: int, missing: int
) -> None:
    spec = ElementSpec(0, (leaf,))
    batch = np.stack(draw_rows(data.draw, leaf, rows))
    _, run = make_encoder(spec, True)(batch)
    zeros = zero_rows(spec, missing, block_of(rows, run))
    check_run(spec.columns, missing, zeros)
    decoded = decode(spec, rows + missing, concat_runs([run, zeros]))
    assert decoded.shape == (rows + missing, *batch.shape[1:])
    assert np.array_equal(decoded[:rows], batch)
    nothing = b"" if leaf.is_string else 0
    assert all(item == nothing for item in decoded[rows:].reshape(-1).tolist())


@given(specs(), st.integers(1, 3))
def test_a_batch_of_zeros_only_has_the_sizes_of_its_spec(spec: ElementSpec, rows: int) -> None:
    run = zero_rows(spec, rows)
    check_run(spec.columns, rows, run)
    leaves_of_batch = spec.flatten(decode(spec, rows, run))
    for leaf, value in zip(spec.leaves, leaves_of_batch, strict=True):
        if leaf.kind == "dense":
            assert value.shape == (rows, *(size or 0 for size in leaf.shape))
        elif leaf.kind == "sparse":
            assert isinstance(value, Sparse)
            assert value.dense_shape.tolist() == [rows, *(size or 0 for size in leaf.shape)]
        elif leaf.kind == "ragged":
            assert isinstance(value, Ragged)
            assert len(value.row_splits[0]) == rows + 1


@pytest.mark.parametrize("shape", [(2, None), (None, 2), (2, 3)])
def test_a_ragged_dimension_of_known_size_keeps_it(shape: tuple[int | None, ...]) -> None:
    spec = ElementSpec(0, (Leaf("", "ragged", "float32", shape, 1),))
    row = Ragged(np.ones(6, np.float32), (np.array([0, 3, 6] if shape[0] else [0, 2, 4, 6]),))
    _, run = make_encoder(spec, False)(row)
    padded = concat_runs([run, zero_rows(spec, 2)])
    value = pack(spec, [tf.constant(part) for part in components(spec, 3, padded)], (None,))
    rows = value.to_list()
    nothing = [[0.0] * (shape[1] or 0)] * (shape[0] or 0)
    assert len(rows[0]) == 2 + (shape[0] is None)
    assert rows[1:] == [nothing, nothing]
