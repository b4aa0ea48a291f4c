"""The blocks of a running split that are kept for its streams. No threads, no clock."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix

_END_ROW = attrgetter("end_row")


class BlockWindow:
    """Consecutive blocks of a split.

    The window has the rows [first, head). A stream that needs row `head` has the next block
    produced. Blocks that all streams have read may be dropped. Other blocks are kept until the
    window reaches its size limit.

    Args:
        start: index of the first row of the first block.

    Attributes:
        start: index of the first row of the first block.
        first: index of the first row that is still in the window.
        head: index of the next row to produce.
        end: the last block of the split, which has no rows; None until it is produced.
        nbytes: size of the blocks in the window.
    """

    def __init__(self, start: int) -> None:
        self.start = self.first = self.head = start
        self.end: RowBlock | None = None
        self.nbytes = 0
        self._blocks: list[RowBlock] = []
        self._end_costs: list[int] = []  # of each block, with all before it
        self._total = 0  # cost of all blocks so far
        self._before_head: Prefix | None = None if start else Prefix()

    def covers(self, row: int) -> bool:
        """Return whether a stream at `row` can be served without producing a row again."""
        return self.first <= row <= self.head

    def blocks_from(self, row: int, limit: int) -> list[RowBlock]:
        """Return consecutive blocks from the one that contains `row` on, of at most `limit` bytes.

        At least one if it is produced and not dropped.
        """
        if not self.first <= row < self.head:
            return []
        at = self._index(row)
        end = bisect_right(self._end_costs, self._cost_before(at) + limit, at)
        return self._blocks[at : max(end, at + 1)]

    def ahead(self, row: int) -> int:
        """Return the bytes of the blocks from the one that contains `row` on."""
        return self._total - self._cost_before(self._index(row))

    def _index(self, row: int) -> int:
        return bisect_right(self._blocks, row, key=_END_ROW)

    def _cost_before(self, at: int) -> int:
        return self._end_costs[at - 1] if at else self._total - self.nbytes

    def prefix(self, row: int) -> Prefix | None:
        """Return all rows before `row`.

        None if the window does not cover `row`, or if it starts after row 0 and its first block is
        not produced yet.
        """
        if row == self.head:
            return self._before_head
        return self._blocks[self._index(row)].prefix_at(row) if self.covers(row) else None

    def append(self, block: RowBlock) -> None:
        """Add the next block of the split. The first one has a prefix digest."""
        if block.last:
            self.end = block
            # If the split ends before `start`, this is the digest of all its rows.
            self._before_head = Prefix(self.head, block.prefix_digest)
            return
        self._blocks.append(block)
        self.head, self._before_head = block.end_row, block.end_prefix
        self.nbytes += block.cost
        self._total += block.cost
        self._end_costs.append(self._total)

    def is_full(self, limit: int, lowest: int) -> bool:
        """Return whether another block would evict one that a stream at row `lowest` needs."""
        return bool(self._blocks) and self.nbytes >= limit and lowest < self._blocks[0].end_row

    def trim(self, limit: int) -> None:
        """Drop the oldest blocks until the window has at most `limit` bytes or one block."""
        while len(self._blocks) > 1 and self.nbytes > limit:
            self._drop_oldest()

    def drop_before(self, row: int) -> None:
        """Drop the blocks that all streams have read, which are at `row` or behind it."""
        while self._blocks and self._blocks[0].end_row <= row:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        dropped = self._blocks.pop(0)
        del self._end_costs[0]
        self.first = dropped.end_row
        self.nbytes -= dropped.cost
