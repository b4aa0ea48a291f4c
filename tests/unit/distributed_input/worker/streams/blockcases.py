"""Blocks of rows with known values and digests."""

from __future__ import annotations

from typing import Any

import numpy as np

from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.prefix import Prefix

ROW = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", ()),))


def digests_of(first_row: int, rows: int) -> np.ndarray:
    """Return distinct digests that depend on the row only."""
    return np.arange(first_row, first_row + rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def prefix_of(rows: int) -> Prefix:
    """Return the first rows of the split."""
    return Prefix().extend(digests_of(0, rows))


def block_of(first_row: int, rows: int, **fields: Any) -> RowBlock:
    """Return a block whose rows contain their index."""
    fields.setdefault("prefix_digest", prefix_of(first_row).digest)
    data = np.arange(first_row, first_row + rows, dtype=np.int64).view(np.uint8)
    return RowBlock(first_row, rows, (data,), digests_of(first_row, rows), **fields)


def end_of(first_row: int, **fields: Any) -> RowBlock:
    """Return the last block of a split."""
    return block_of(first_row, 0, last=True, **fields)


def progress_of(rows: int) -> RowBlock:
    """Return the progress report of a replay."""
    return RowBlock(0, 0, (), digests_of(0, 0), replayed=rows)


def state_of(token: bytes) -> RowBlock:
    """Return a block with a saved state."""
    return RowBlock(0, 0, (), digests_of(0, 0), resume_token=token)


def rows_in(found: list[RowBlock]) -> list[int]:
    """Return the indices that the rows of blocks contain."""
    return [int(row) for block in found for row in block.buffers[0].view(np.int64)]
