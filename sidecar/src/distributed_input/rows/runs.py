"""Cutting runs of rows, with no knowledge of what the rows mean.

A run is a list of buffers laid out as `distributed_input.rows.elements` says. Slices are views:
nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from distributed_input.rows.elements import Column

Bytes: TypeAlias = npt.NDArray[np.uint8]
Buffer: TypeAlias = Any  # a 1-D uint8 array, or anything with the buffer protocol (bytes, ...)


def as_bytes(buffer: Buffer) -> Bytes:
    """The buffer as a 1-D uint8 array that shares, and keeps alive, its memory."""
    if isinstance(buffer, np.ndarray):
        return buffer if buffer.dtype == np.uint8 else buffer.reshape(-1).view(np.uint8)
    return np.frombuffer(buffer, np.uint8)


def row_lengths(buffer: Buffer) -> npt.NDArray[np.uint32]:
    """The first buffer of a variable column: bytes of each row."""
    return as_bytes(buffer).view(np.uint32)


def slice_run(
    columns: Sequence[Column], buffers: Sequence[Buffer], start: int, stop: int
) -> list[Bytes]:
    """Rows [start, stop) of a run, as views."""
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
