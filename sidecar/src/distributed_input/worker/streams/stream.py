"""Elements of a split into blocks: replay the prefix, digest, share or cut messages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks, encode
from distributed_input.rows.blocks import RowBlock, digest_of
from distributed_input.rows.digest import row_digests
from distributed_input.rows.elements import Column
from distributed_input.rows.runs import Bytes, slice_run
from distributed_input.tfdata import user_code
from distributed_input.worker.datasets.sources import Source
from distributed_input.worker.streams.window import Made

BLOCK_BYTES = 1 << 20  # the message size that gRPC moves best
_QUICK_SECONDS = 0.002  # elements that come faster than this may share a message
_HOLD_SECONDS = 0.01  # for at most so long
_TELL_SECONDS = 1.0  # between words of a replay


@dataclass
class Work:
    """What a stream has done so far, for metrics and the split's next batch size."""

    rows: int = 0
    bytes: int = 0
    busy_seconds: float = 0.0
    replayed_rows: int = 0
    stall_seconds: float = 0.0  # rows that were ready waited to be sent
    shared_rows: int = 0  # sent, and made for another stream


def total(parts: Iterable[Work]) -> Work:
    """All of several streams' work."""
    summed = Work()
    for part in parts:
        for name, value in vars(part).items():
            setattr(summed, name, getattr(summed, name) + value)
    return summed


@dataclass(frozen=True)
class _Rows:
    """Rows as they come out of an element, with the time that making them took.

    None: so many as `first_row` says were made again so far.
    """

    first_row: int
    rows: int
    runs: Sequence[Sequence[Bytes]]  # one behind the other
    digests: NDArray[np.uint64]
    seconds: float

    @property
    def nbytes(self) -> int:
        return sum(buffer.nbytes for run in self.runs for buffer in run)


def split_blocks(
    request: worker_pb2.StreamRequest,
    source: Source,
    node: str,
    work: Work,
) -> Iterator[Made]:
    """The split's rows from `request.start_row` on, as encoded blocks; the last, empty, says so.

    While the rows before are made again, which may take long, it tells now and then how many are.

    The first block tells how the rows before it, made again, compare with those the request
    knows of. A split that ends before `start_row` yields its end alone.

    Args:
        request: what the sidecar asked for.
        source: elements of the split, from its first.
        node: kind of this node.
        work: is kept up to date.
    """
    replay = _Replay(request.start_row, request.prefix_rows)
    columns = source.row.columns
    first = True
    for rows in _merged(replay.rest_of(_made(source, work), columns), columns):
        if not rows.rows:
            work.replayed_rows = rows.first_row
            yield _replayed(rows)
            continue
        block = RowBlock(rows.first_row, rows.rows, (), rows.digests, busy_seconds=rows.seconds)
        work.rows += rows.rows
        work.bytes += rows.nbytes
        work.replayed_rows = min(replay.row, request.start_row)
        block = _opening(block, request, replay, node) if first else block
        first = False
        data = blocks.encode(block, rows.runs)
        yield Made(
            rows.first_row,
            rows.rows,
            rows.digests,
            data,
            rows.nbytes,
            replay.digest,
            block.prefix_differs,
        )
    end = RowBlock(replay.row, 0, _empty(source), np.zeros(0, np.uint64), last=True)
    work.replayed_rows = min(replay.row, request.start_row)
    end = _opening(end, request, replay, node) if first else end
    data = blocks.encode(end)
    yield Made(replay.row, 0, end.digests, data, 0, replay.digest, end.prefix_differs)


def _replayed(rows: _Rows) -> Made:
    """What tells that so many rows have been made again."""
    block = RowBlock(0, 0, (), rows.digests, replayed=rows.first_row)
    return Made(0, 0, rows.digests, blocks.encode(block), 0, replayed=rows.first_row)


def _opening(
    block: RowBlock, request: worker_pb2.StreamRequest, replay: _Replay, node: str
) -> RowBlock:
    differs = request.check_prefix and replay.checked != request.prefix_digest
    return replace(block, prefix_differs=differs, node=node, prefix_digest=replay.digest)


def _made(source: Source, work: Work) -> Iterator[tuple[int, list[Bytes], float]]:
    """(rows, buffers, seconds) of each element."""
    encoder = encode.make_encoder(source.row, source.batched)
    while True:
        with user_code.user_errors("the dataset"):
            began = time.perf_counter()
            try:
                element = next(source.elements)
            except StopIteration:
                return
            rows, buffers = encoder(element)
            seconds = time.perf_counter() - began
        work.busy_seconds += seconds
        if rows:
            yield rows, buffers, seconds


class _Replay:
    """Counts rows, digests those before `start` and passes on the rest.

    Attributes:
        row: rows made so far.
        digest: of those before `start`.
        checked: of those before `check`, which is at most `start`; None: not so many were made.
    """

    def __init__(self, start: int, check: int) -> None:
        self.start = start
        self.row = 0
        self.digest = 0
        self.checked: int | None = None if check else 0
        self._check = check

    def rest_of(
        self, made: Iterator[tuple[int, list[Bytes], float]], columns: Sequence[Column]
    ) -> Iterator[_Rows]:
        widths = [column.row_bytes for column in columns]
        told = time.monotonic()
        for count, buffers, seconds in made:
            first, self.row = self.row, self.row + count
            digests = row_digests(widths, buffers, count, first)
            before = min(count, max(0, self.start - first))
            if before:
                if first < self._check <= first + before:
                    part = digest_of(digests[: self._check - first])
                    self.checked = (self.digest + part) % (1 << 64)
                self.digest = (self.digest + digest_of(digests[:before])) % (1 << 64)
                if before == count:
                    if time.monotonic() - told > _TELL_SECONDS:
                        told = time.monotonic()
                        yield _Rows(self.row, 0, [], digests[:0], 0.0)
                    continue
                buffers = slice_run(columns, buffers, before, count)
            yield _Rows(first + before, count - before, [buffers], digests[before:], seconds)


def _merged(made: Iterator[_Rows], columns: Sequence[Column]) -> Iterator[_Rows]:
    """Rows for blocks of about BLOCK_BYTES: small runs that come quickly share one."""
    waiting: list[_Rows] = []
    size, since = 0, 0.0
    for rows in made:
        if not rows.rows:
            yield rows  # before all others
            continue
        if rows.nbytes >= BLOCK_BYTES:
            if waiting:
                yield _joined(waiting)
            yield from _cut(rows, columns)
            waiting, size = [], 0
            continue
        now = time.perf_counter()
        since = since if waiting else now
        waiting.append(rows)
        size += rows.nbytes
        quick = rows.seconds < _QUICK_SECONDS and now - since < _HOLD_SECONDS
        if not quick or size >= BLOCK_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    return _Rows(
        parts[0].first_row,
        sum(part.rows for part in parts),
        [run for part in parts for run in part.runs],
        np.concatenate([part.digests for part in parts]),
        sum(part.seconds for part in parts),
    )


def _cut(rows: _Rows, columns: Sequence[Column]) -> Iterator[_Rows]:
    """A large run as several of about BLOCK_BYTES, and of at least one row."""
    per_block = max(1, rows.rows * BLOCK_BYTES // rows.nbytes)
    if rows.nbytes < 2 * BLOCK_BYTES or rows.rows <= per_block:
        yield rows
        return
    (run,) = rows.runs
    for start in range(0, rows.rows, per_block):
        stop = min(rows.rows, start + per_block)
        yield _Rows(
            rows.first_row + start,
            stop - start,
            [slice_run(columns, run, start, stop)],
            rows.digests[start:stop],
            rows.seconds * (stop - start) / rows.rows,
        )


def _empty(source: Source) -> tuple[Bytes, ...]:
    return tuple(np.zeros(0, np.uint8) for _ in range(source.row.buffer_count))
