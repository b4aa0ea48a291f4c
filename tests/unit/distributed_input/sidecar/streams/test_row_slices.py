from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.rows import runs
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import Column
from distributed_input.sidecar.streams import row_slices
from distributed_input.sidecar.streams.row_slices import BlockSlices

COLUMNS = (Column("fixed", 3), Column("variable", None))


def block_of(texts: list[bytes], first_row: int = 4) -> RowBlock:
    """Return a block with a fixed-width and a variable column."""
    rows = len(texts)
    fixed = np.arange(3 * rows, dtype=np.uint8)
    lengths = np.array([len(text) for text in texts], np.uint32).view(np.uint8)
    data = np.frombuffer(b"".join(texts), np.uint8)
    digests = np.arange(rows, dtype=np.uint64)
    return RowBlock(first_row, rows, (fixed, lengths, data), digests, last=True, split=6)


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=8), st.data())
def test_slices_together_are_the_block(texts: list[bytes], data: st.DataObject) -> None:
    block = block_of(texts)
    cuts = data.draw(st.lists(st.integers(0, block.rows), max_size=4))
    borders = sorted({0, block.rows, *cuts})
    whole = BlockSlices(COLUMNS, block)
    slices = [whole.slice(start, stop) for start, stop in pairwise(borders)]
    assert [piece.first_row for piece in slices] == [4 + start for start in borders[:-1]]
    assert sum(piece.rows for piece in slices) == block.rows
    for i, buffer in enumerate(block.buffers):
        assert b"".join(piece.buffers[i].tobytes() for piece in slices) == buffer.tobytes()
    assert np.concatenate([piece.digests for piece in slices]).tolist() == block.digests.tolist()


def test_slices_are_views_and_a_whole_block_is_itself() -> None:
    block = block_of([b"ab", b"", b"cde"])
    whole = BlockSlices(COLUMNS, block)
    assert whole.slice(0, 3) is block
    piece = whole.slice(1, 3)
    assert (piece.last, piece.split) == (False, 6)
    for part, buffer in zip(piece.buffers, block.buffers, strict=True):
        assert np.shares_memory(part, buffer)


def test_the_lengths_of_rows_are_read_once_per_block(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def row_offsets(*args: Any) -> Any:
        read.append(1)
        return runs.row_offsets(*args)

    monkeypatch.setattr(row_slices, "row_offsets", row_offsets)
    slices = BlockSlices(COLUMNS, block_of([b"ab", b"", b"cde"]))
    assert [bytes(slices.slice(i, i + 1).buffers[2]) for i in range(3)] == [b"ab", b"", b"cde"]
    assert len(read) == 1
