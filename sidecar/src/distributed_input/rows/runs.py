"""Runs of rows: types of their buffers, and slices of a run.

The package's docstring describes the layout. Slices are views; nothing is copied and no value is
read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from distributed_input.rows.elements import Column

Bytes: TypeAlias = npt.NDArray[np.uint8]
Offsets: TypeAlias = npt.NDArray[np.int64]
Buffer: TypeAlias = Any  # a 1-D uint8 array, or an object with the buffer protocol (bytes, ...)


def as_bytes(buffer: Buffer) -> Bytes:
    """Return the buffer as a 1-D uint8 array that shares its memory and keeps it alive."""
    if isinstance(buffer, np.ndarray):
        is_bytes = buffer.dtype == np.uint8 and buffer.ndim == 1
        return buffer if is_bytes else buffer.reshape(-1).view(np.uint8)
    return np.frombuffer(buffer, np.uint8)


def row_lengths(buffer: Buffer) -> npt.NDArray[np.uint32]:
    """Return the bytes of each row, from the first buffer of a variable-width column."""
    return as_bytes(buffer).view(np.uint32)


def row_offsets(columns: Sequence[Column], buffers: Sequence[Buffer]) -> list[Offsets]:
    """Return where each row begins in the data of each variable-width column, and where it ends."""
    offsets: list[Offsets] = []
    at = 0
    for column in columns:
        if column.row_bytes is None:
            lengths = row_lengths(buffers[at])
            ends = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=ends[1:])
            offsets.append(ends)
        at += column.buffers
    return offsets


def slice_run(
    columns: Sequence[Column],
    buffers: Sequence[Buffer],
    start: int,
    stop: int,
    offsets: Sequence[Offsets] | None = None,
) -> list[Bytes]:
    """Return rows [start, stop) of a run, as views.

    Args:
        columns: columns of the row spec.
        buffers: buffers of the run.
        start: index in the run of the first row.
        stop: index in the run of the row after the last one.
        offsets: `row_offsets` of the run, if several slices of it are needed.
    """
    ends = iter(row_offsets(columns, buffers) if offsets is None else offsets)
    out: list[Bytes] = []
    at = 0
    for column in columns:
        data = as_bytes(buffers[at])
        width = 4 if column.row_bytes is None else column.row_bytes
        out.append(data[start * width : stop * width])
        if column.row_bytes is None:
            of_rows = next(ends)
            out.append(as_bytes(buffers[at + 1])[of_rows[start] : of_rows[stop]])
        at += column.buffers
    return out
