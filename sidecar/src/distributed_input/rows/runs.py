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
Buffer: TypeAlias = Any  # a 1-D uint8 array, or an object with the buffer protocol (bytes, ...)


def as_bytes(buffer: Buffer) -> Bytes:
    """Return the buffer as a 1-D uint8 array that shares its memory and keeps it alive."""
    if isinstance(buffer, np.ndarray):
        return buffer if buffer.dtype == np.uint8 else buffer.reshape(-1).view(np.uint8)
    return np.frombuffer(buffer, np.uint8)


def row_lengths(buffer: Buffer) -> npt.NDArray[np.uint32]:
    """Return the bytes of each row, from the first buffer of a variable-width column."""
    return as_bytes(buffer).view(np.uint32)


def slice_run(
    columns: Sequence[Column], buffers: Sequence[Buffer], start: int, stop: int
) -> list[Bytes]:
    """Return rows [start, stop) of a run, as views.

    Args:
        columns: columns of the row spec.
        buffers: buffers of the run.
        start: index in the run of the first row.
        stop: index in the run of the row after the last one.
    """
    out: list[Bytes] = []
    at = 0
    for column in columns:
        data = as_bytes(buffers[at])
        if column.row_bytes is not None:
            out.append(data[start * column.row_bytes : stop * column.row_bytes])
        else:
            lengths = row_lengths(data)
            before = int(lengths[:start].sum(dtype=np.int64))
            size = int(lengths[start:stop].sum(dtype=np.int64))
            out.append(data[4 * start : 4 * stop])
            out.append(as_bytes(buffers[at + 1])[before : before + size])
        at += column.buffers
    return out
