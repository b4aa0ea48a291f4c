"""Hypothesis strategies for leaf specs and matching rows, as plain Python values.

The value of a row is an array for a dense or unranked leaf, nested lists of arrays for a ragged
leaf, and (indices, values, dense_shape) for a sparse leaf. This module does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distributed_input.rows.elements import Column, ElementSpec, Leaf, numpy_dtype
from distributed_input.rows.runs import Bytes, row_lengths

DTYPES = "bool int8 uint16 int32 int64 float16 bfloat16 float32 float64 complex64 string".split()
_STRINGS = st.binary(max_size=6) | st.sampled_from([b"", b"\0", b"a\0\0", b"\xff" * 9])
_SIZES = st.integers(0, 3)


def array(draw: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an array of small values that every type represents exactly."""
    count = int(np.prod(shape))
    if dtype == "string":
        out = np.empty(count, object)
        for i in range(count):
            out[i] = draw(_STRINGS)
        return out.reshape(shape)
    values = draw(hnp.arrays(np.int8, shape, elements=st.integers(0, 100)))
    return values.astype(numpy_dtype(dtype))


@st.composite
def leaves(draw: Any, path: str = "x") -> Leaf:
    """Draw any leaf of a row."""
    kind = draw(st.sampled_from(["dense", "ragged", "sparse", "unranked"]))
    dtype = draw(st.sampled_from(DTYPES))
    if kind == "unranked":
        return Leaf(path, kind, dtype, ())
    if kind == "ragged":
        rank = draw(st.integers(0, 2))
        inner = tuple(draw(st.lists(st.integers(1, 2), max_size=2)))
        splits = draw(st.sampled_from(["int32", "int64"]))
        return Leaf(path, kind, dtype, (None,) * (rank + 1) + inner, rank, splits)
    least = 1 if kind == "sparse" else 0
    sizes = _SIZES if kind == "dense" else st.integers(1, 3)
    shape = draw(st.lists(st.none() | sizes, min_size=least, max_size=3))
    return Leaf(path, kind, dtype, tuple(shape))


@st.composite
def specs(draw: Any) -> ElementSpec:
    """Draw a spec of one to four leaves, flat or nested."""
    count = draw(st.integers(1, 4))
    if count == 1 and draw(st.booleans()):
        return ElementSpec(0, (draw(leaves("")),))
    if count == 2 and draw(st.booleans()):
        inner = {"a": 0, "b": (None, 1)}
        return ElementSpec(inner, (draw(leaves("a")), draw(leaves("b/1"))))
    return ElementSpec(tuple(range(count)), tuple(draw(leaves(str(i))) for i in range(count)))


def draw_dims(draw: Any, leaf: Leaf) -> tuple[int, ...]:
    """Draw the shape of a row: sizes for the unknown dimensions, or all of an unranked leaf."""
    if leaf.kind == "unranked":
        return tuple(draw(st.lists(_SIZES, max_size=3)))
    return tuple(draw(_SIZES) if size is None else size for size in leaf.shape)


def draw_rows(draw: Any, leaf: Leaf, count: int) -> list[Any]:
    """Draw rows of a leaf. Dense rows have the same dimensions, so that they can be one batch."""
    if leaf.kind in ("dense", "unranked"):
        dims = draw_dims(draw, leaf)
        return [array(draw, leaf.dtype, dims) for _ in range(count)]
    if leaf.kind == "ragged":
        inner = tuple(size or 0 for size in leaf.inner_shape)
        return [_ragged(draw, leaf.dtype, inner, leaf.ragged_rank) for _ in range(count)]
    return [_sparse(draw, leaf) for _ in range(count)]


def _ragged(draw: Any, dtype: str, inner: tuple[int, ...], rank: int) -> Any:
    size = draw(_SIZES)
    if rank == 0:
        return array(draw, dtype, (size, *inner))
    return [_ragged(draw, dtype, inner, rank - 1) for _ in range(size)]


def _sparse(draw: Any, leaf: Leaf) -> Any:
    shape = draw_dims(draw, leaf)
    total = int(np.prod(shape))
    chosen = sorted(draw(st.sets(st.integers(0, total - 1), max_size=3))) if total else []
    indices = np.array([np.unravel_index(i, shape) for i in chosen], np.int64)
    values = array(draw, leaf.dtype, (len(chosen),))
    return indices.reshape(len(chosen), len(shape)), values, np.array(shape, np.int64)


def check_run(columns: Sequence[Column], rows: int, buffers: Sequence[Bytes]) -> None:
    """Check that the buffers are a run of this number of rows; see `distributed_input.rows`."""
    expected, at = [], 0
    for column in columns:
        if column.row_bytes is None:
            expected += [4 * rows, int(row_lengths(buffers[at]).sum(dtype=np.int64))]
        else:
            expected.append(rows * column.row_bytes)
        at += column.buffers
    assert [buffer.size for buffer in buffers] == expected


def concat_runs(runs: Sequence[Sequence[Bytes]]) -> list[Bytes]:
    """Return one run with the rows of all runs, in order."""
    return [np.concatenate(parts) for parts in zip(*runs, strict=True)]
