"""Rows of zeros fill up a batch of any spec."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.client.tensorflow.decode import components, pack
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.decode import Ragged, Sparse, decode
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.encode import make_encoder
from distributed_input.rows.padding import zero_rows
from tests.unit.distributed_input.rowcases import (
    check_run,
    concat_runs,
    draw_rows,
    leaves,
    specs,
)


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
    value = pack(spec, [tf.constant(part) for part in components(spec, 3, padded)], True)
    rows = value.to_list()
    nothing = [[0.0] * (shape[1] or 0)] * (shape[0] or 0)
    assert len(rows[0]) == 2 + (shape[0] is None)
    assert rows[1:] == [nothing, nothing]
