"""The rows of one running source that are kept for several readers. Pure: no threads, no clock.

A window holds the blocks [first, head) of a split. Readers are known by the row that they want
next. Whoever wants row `head` has the next block made; a block that every reader has passed may
go, and one that a reader has not is kept for as long as the window's size allows.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distributed_input.rows.blocks import digest_of

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Made:
    """A block as it goes out, and what it holds.

    Attributes:
        first_row: index in the split of its first row.
        rows: how many.
        digests: uint64, of each row.
        data: the encoded `Block`.
        nbytes: of the rows in it.
        before: digest of the rows before the source's first block.
        differs: on that block: those rows are not what they were known to be.
        replayed: rows before the first block made so far; then this is none, but says only that.
    """

    first_row: int
    rows: int
    digests: NDArray[np.uint64]
    data: bytes
    nbytes: int
    before: int = 0
    differs: bool = False
    replayed: int = 0

    @property
    def last(self) -> bool:
        """It holds nothing, and tells that there are no more."""
        return not self.rows and not self.replayed


class Window:
    """Blocks of one source, and who reads them.

    Args:
        start: the row at which its first block begins.

    Attributes:
        first: row; those before are gone.
        head: row; those from here on are not made.
        start: where it began.
        end: the last block, once it is made: it holds nothing, and tells that there are no more.
        nbytes: of the blocks.
        readers: by reader, the row that it wants next.
    """

    def __init__(self, start: int) -> None:
        self.start = self.first = self.head = start
        self.end: Made | None = None
        self.nbytes = 0
        self.readers: dict[int, int] = {}
        self._blocks: deque[Made] = deque()
        self._before: int | None = None if start else 0  # digest of the rows before `first`

    def covers(self, row: int) -> bool:
        """Whether a reader that wants `row` can be served without any row made again."""
        return self.first <= row <= self.head

    def at(self, row: int) -> Made | None:
        """The block that holds `row`; None: it is not made, or gone."""
        for block in self._blocks:
            if block.first_row <= row < block.first_row + block.rows:
                return block
        return None

    def digest(self, row: int) -> int | None:
        """Of all rows before `row`; None where that is not known any more, or not yet."""
        if self._before is None or not self.covers(row):
            return None
        total = self._before
        for block in self._blocks:
            if block.first_row >= row:
                break
            total += digest_of(block.digests[: row - block.first_row])
        return total & _MASK

    def append(self, made: Made) -> None:
        """Take up the next block."""
        if self._before is None:
            self._before = made.before
        if made.last:
            self.end = made
            return
        self._blocks.append(made)
        self.head = made.first_row + made.rows
        self.nbytes += len(made.data)

    def slowest(self) -> int:
        """The lowest row that a reader wants; `head` where nobody reads."""
        return min(self.readers.values(), default=self.head)

    def is_full(self, limit: int) -> bool:
        """Whether another block would push one out that a reader still wants."""
        if self.nbytes < limit or not self._blocks:
            return False
        oldest = self._blocks[0]
        return self.slowest() < oldest.first_row + oldest.rows

    def trim(self, limit: int) -> None:
        """Let the oldest blocks go until there are at most `limit` bytes of them, or one."""
        while len(self._blocks) > 1 and self.nbytes > limit:
            self._drop()

    def drop_read(self) -> None:
        """Let those go that all readers have passed."""
        row = self.slowest()
        while self._blocks and self._blocks[0].first_row + self._blocks[0].rows <= row:
            self._drop()

    def _drop(self) -> None:
        gone = self._blocks.popleft()
        assert self._before is not None
        self._before = (self._before + digest_of(gone.digests)) & _MASK
        self.first = gone.first_row + gone.rows
        self.nbytes -= len(gone.data)
