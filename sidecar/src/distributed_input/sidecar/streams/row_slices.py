"""Slices of row blocks."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import Column
from distributed_input.rows.runs import Offsets, row_offsets, slice_run


class BlockSlices:
    """Slices of a block. The offsets of its rows are computed once, for the first slice.

    Args:
        columns: columns of a row.
        block: the block.
    """

    __slots__ = ("_columns", "_offsets", "block")

    def __init__(self, columns: Sequence[Column], block: RowBlock) -> None:
        self.block = block
        self._columns = columns
        self._offsets: Sequence[Offsets] | None = None

    def slice(self, start: int, stop: int) -> RowBlock:
        """Return rows [start, stop) of the block, as views of its buffers.

        The slice has no properties of the stream, such as `last`. All rows are the block itself.

        Args:
            start: index in the block of the first row.
            stop: index in the block behind the last row.
        """
        block = self.block
        if start == 0 and stop == block.rows:
            return block
        if self._offsets is None:
            self._offsets = row_offsets(self._columns, block.buffers)
        return RowBlock(
            block.first_row + start,
            stop - start,
            tuple(slice_run(self._columns, block.buffers, start, stop, self._offsets)),
            block.digests[start:stop],
            split=block.split,
        )
