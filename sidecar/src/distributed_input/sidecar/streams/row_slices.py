"""Slices of row blocks."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import Column
from distributed_input.rows.runs import slice_run


def slice_block(columns: Sequence[Column], block: RowBlock, start: int, stop: int) -> RowBlock:
    """Return rows [start, stop) of a block, as views of its buffers.

    The slice has no properties of the stream, such as `last`.

    Args:
        columns: columns of a row.
        block: block to slice.
        start: index in the block of the first row.
        stop: index in the block behind the last row.
    """
    if start == 0 and stop == block.rows:
        return block
    buffers = slice_run(columns, block.buffers, start, stop)
    return RowBlock(
        block.first_row + start,
        stop - start,
        tuple(buffers),
        block.digests[start:stop],
        digest_version=block.digest_version,
    )
