"""Rows of zeros, which fill up a batch. They have the shape of the batch's other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.runs import Bytes, slice_run


def zero_rows(spec: ElementSpec, rows: int, like: RowBlock | None = None) -> list[Bytes]:
    """Return the run of rows of zeros, or of empty strings.

    Args:
        spec: spec of a row.
        rows: number of rows.
        like: its last row has the sizes that the spec does not have. Without it they are 0. Ragged
            dimensions are always empty.
    """
    last: Sequence[Bytes] | None = None
    if like is not None and like.rows:
        last = slice_run(spec.columns, like.buffers, like.rows - 1, like.rows)
    buffers: list[Bytes] = []
    for leaf in spec.leaves:
        buffers += _zeros(leaf, rows, None if last is None else last[len(buffers) :])
    return buffers


def _zeros(leaf: Leaf, rows: int, last: Sequence[Bytes] | None) -> list[Bytes]:
    """Return the columns of a leaf. `last` begins with the leaf's columns of the last row."""
    sizes = np.array([size or 0 for size in leaf.shape], np.int64)
    if leaf.is_static:
        if not leaf.is_string:
            return [_zero_bytes(rows, leaf.itemsize * leaf.size)]
        return [_zero_bytes(rows, 4 * leaf.size), *_sized(rows, 0)]
    if leaf.kind == "sparse":
        return [_tiled(sizes, rows), *_sized(rows, 0), *_values(leaf, rows, 0)]
    if leaf.kind == "ragged":
        count, levels = int(sizes[0]), list[Bytes]()
        for size in sizes[1 : leaf.ragged_rank + 1].tolist():
            levels += [_lengths(rows, 4 * count), _tiled(np.full(count, size, np.int32), rows)]
            count *= size
        return [*levels, *_values(leaf, rows, count * leaf.size)]
    if leaf.kind == "unranked":
        dims = np.zeros(1, np.int32) if last is None else last[1].view(np.int32)
        columns = [_lengths(rows, 4 * len(dims)), _tiled(dims, rows)]
    else:
        dims = sizes.astype(np.int32) if last is None else last[0].view(np.int32)
        columns = [_tiled(dims, rows)]
    return [*columns, *_values(leaf, rows, int(np.prod(dims, dtype=np.int64)))]


def _values(leaf: Leaf, rows: int, items: int) -> list[Bytes]:
    """Return the variable-width columns of rows with a number of zeros or empty strings each."""
    if leaf.is_string:
        return [*_sized(rows, 4 * items), *_sized(rows, 0)]
    return _sized(rows, leaf.itemsize * items)


def _sized(rows: int, size: int) -> list[Bytes]:
    """Return a variable-width column of zeros with `size` bytes in each row."""
    return [_lengths(rows, size), _zero_bytes(rows, size)]


def _lengths(rows: int, size: int) -> Bytes:
    return np.full(rows, size, np.uint32).view(np.uint8)


def _zero_bytes(rows: int, size: int) -> Bytes:
    return np.zeros(rows * size, np.uint8)


def _tiled(values: NDArray[Any], rows: int) -> Bytes:
    return np.tile(values, rows).view(np.uint8)
