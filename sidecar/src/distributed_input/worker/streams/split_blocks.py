"""The blocks of a split from a start row on, after a replay of the rows before it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import BLOCK_BYTES, RowBlock
from distributed_input.rows.elements import Column
from distributed_input.rows.prefix import Prefix
from distributed_input.worker.crash_notes import Computed
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.states.saved_state import StateError
from distributed_input.worker.states.state_saver import StateSaver
from distributed_input.worker.streams.element_rows import (
    ElementRows,
    cut_rows,
    encode_elements,
)

_PROGRESS_SECONDS = 1.0  # between progress reports of a replay
_NO_DIGESTS: NDArray[np.uint64] = np.zeros(0, np.uint64)


def split_blocks(
    request: worker_pb2.StreamRequest,
    split: SplitIterator,
    node: str,
    counters: StreamCounters,
    start: Prefix | None = None,
    saver: StateSaver | None = None,
) -> Iterator[RowBlock]:
    """Yield the rows of a split from `request.start_row` on, as blocks.

    The rows before are produced again and compared with the prefix in the request. The first block
    has the result. A replay may take long, so blocks with the field `replayed` report its progress.
    The last block has no rows. If the split ends before `start_row`, it is the only block. Blocks
    with the field `resume_token` have saved states of the split, at rows that were sent before.

    Args:
        request: request of the sidecar.
        split: elements of the split.
        node: kind of this node.
        counters: updated with each block.
        start: rows before the first element, if the split was restored; None: there are none.
        saver: saves the states of the split.

    Raises:
        StateError: the rows after the restored state are not those of the request.
    """
    start = start or Prefix()
    replay = Replay(request.start_row, request.prefix_rows, start)
    of = Computed.of(request.job, request.epoch, request.split)
    elements = encode_elements(split, counters, start.rows, saver, of)
    if saver is not None and start.rows:
        saver.pause()
    rest = yield from _replay(replay, elements, split.row.columns, counters, saver)
    if start.rows:
        _check_restored(request, replay)
    if saver is not None:
        saver.resume()
    end_row, first = replay.prefix.rows, True
    for rows in chain(rest, elements):
        for part in cut_rows(rows, split.row.columns, block_bytes(request)):
            block = _block_of(part)
            block = _with_stream_header(block, request, replay, node) if first else block
            first, end_row = False, block.end_row
            counters.rows += block.rows
            counters.bytes += block.nbytes
            yield block
        yield from _new_state(saver)
    nothing = (np.zeros(0, np.uint8),) * split.row.buffer_count
    end = RowBlock(end_row, 0, nothing, _NO_DIGESTS, last=True)
    yield _with_stream_header(end, request, replay, node) if first else end


def block_bytes(request: worker_pb2.StreamRequest) -> int:
    """Return the size of the largest block of a stream, unless a row is larger."""
    return max(BLOCK_BYTES, request.block_bytes)


def progress_report(rows: int) -> RowBlock:
    """Return a block without rows that reports the rows before the start that were produced."""
    return RowBlock(0, 0, (), _NO_DIGESTS, replayed=rows)


class Replay:
    """The rows before the start of a stream, as they are produced again.

    Args:
        start_row: index of the first row of the stream.
        checked_rows: number of rows whose digest the request has; at most `start_row`.
        start: rows that are not produced again, because the split was restored behind them.

    Attributes:
        prefix: the rows produced so far, up to `start_row`.
        checked: the first `checked_rows` rows; None until they are produced.
    """

    def __init__(self, start_row: int, checked_rows: int, start: Prefix | None = None) -> None:
        self.prefix = self._start = start or Prefix()
        known = checked_rows == self.prefix.rows
        self.checked: Prefix | None = self.prefix if known else None
        self._start_row, self._checked_rows = start_row, checked_rows

    @property
    def is_complete(self) -> bool:
        """Return whether all rows before the start are produced."""
        return self.prefix.rows >= self._start_row

    @property
    def produced_rows(self) -> int:
        """Return the number of rows that were produced again."""
        return self.prefix.rows - self._start.rows

    def add(self, digests: NDArray[np.uint64]) -> int:
        """Add the next rows of the split. Return how many of them are before the start row."""
        count = min(len(digests), self._start_row - self.prefix.rows)
        unchecked = self._checked_rows - self.prefix.rows
        if 0 < unchecked <= count:
            self.checked = self.prefix.extend(digests[:unchecked])
        self.prefix = self.prefix.extend(digests[:count])
        return count

    def differs(self, known: Prefix) -> bool:
        """Return whether the checked rows are not those of a known prefix of the same length."""
        return self.checked is None or not self.checked.matches(known)


def _replay(
    replay: Replay,
    elements: Iterator[ElementRows],
    columns: Sequence[Column],
    counters: StreamCounters,
    saver: StateSaver | None,
) -> Generator[RowBlock, None, Sequence[ElementRows]]:
    """Yield progress reports and new states until the replay is complete or the split ends.

    Returns:
        The rows of the last element that are not before the start row, if there are any.
    """
    reported = time.monotonic()
    while not replay.is_complete:
        rows = next(elements, None)
        if rows is None:
            break
        before = replay.add(rows.digests)
        if before < rows.rows:
            counters.replayed_rows = replay.produced_rows
            return [rows.slice(columns, before, rows.rows, rows.seconds)]
        if time.monotonic() - reported > _PROGRESS_SECONDS:
            reported = time.monotonic()
            counters.replayed_rows = replay.produced_rows
            yield progress_report(replay.prefix.rows)
        yield from _new_state(saver)
    counters.replayed_rows = replay.produced_rows
    return []


def _check_restored(request: worker_pb2.StreamRequest, replay: Replay) -> None:
    """Raise StateError if a restored split does not have the rows that the request has to have."""
    if not replay.is_complete:
        raise StateError(f"the split ends at row {replay.prefix.rows}")
    known = Prefix(request.prefix_rows, request.prefix_digest)
    if request.check_prefix and replay.differs(known):
        raise StateError(f"the first {known.rows} rows differ from those sent before")


def _new_state(saver: StateSaver | None) -> Iterator[RowBlock]:
    token = saver.take() if saver is not None else b""
    if token:
        yield RowBlock(0, 0, (), _NO_DIGESTS, resume_token=token)


def _block_of(rows: ElementRows) -> RowBlock:
    buffers = tuple(rows.buffers)
    return RowBlock(rows.first_row, rows.rows, buffers, rows.digests)


def _with_stream_header(
    block: RowBlock, request: worker_pb2.StreamRequest, replay: Replay, node: str
) -> RowBlock:
    """Return the first block of a stream, with the result of the replay."""
    known = Prefix(request.prefix_rows, request.prefix_digest)
    return replace(
        block,
        prefix_differs=request.check_prefix and replay.differs(known),
        node=node,
        prefix_digest=replay.prefix.digest,
    )
