"""The rows of a split from a start row on, as blocks, after a replay of the rows before it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import SpecError
from distributed_input.api.proto import worker_pb2
from distributed_input.graph import user_code
from distributed_input.graph.native_ops import EncodedRows
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows import encode
from distributed_input.rows.blocks import BLOCK_BYTES, RowBlock
from distributed_input.rows.digest import digests_of, row_hashes
from distributed_input.rows.elements import Column, ElementSpec
from distributed_input.rows.prefix import Prefix
from distributed_input.rows.runs import row_offsets
from distributed_input.worker import crash_notes
from distributed_input.worker.crash_notes import Computed, Note
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.states.saved_state import StateError
from distributed_input.worker.states.state_saver import StateSaver
from distributed_input.worker.streams.joined_rows import JoinedRows

_PROGRESS_SECONDS = 1.0  # between progress reports of a replay
_NO_DIGESTS: NDArray[np.uint64] = np.zeros(0, np.uint64)
PYTHON_REMEDY = (
    "A Python iterable without `element_spec` has the spec of its first element. Make all elements"
    " alike, or set `element_spec` on the entry point's function, for example"
    ' {"value": tf.TensorSpec([], tf.float32)}'
)


def split_blocks(
    request: worker_pb2.StreamRequest,
    split: SplitIterator,
    counters: StreamCounters,
    start: Prefix | None = None,
    saver: StateSaver | None = None,
    included: int = 0,
) -> Iterator[RowBlock]:
    """Yield the rows of a split from `request.start_row` on, as blocks with a prefix digest.

    The rows before are produced again and compared with the prefix in the request. The first block
    has the result. A replay may take long, so blocks with the field `replayed` report its progress.
    The last block has no rows. If the split ends before `start_row`, it is the only block. Blocks
    with the field `resume_token` have saved states of the split, at rows that were sent before.

    Args:
        request: request of the sidecar.
        split: elements of the split.
        counters: updated with each block.
        start: rows before the first element, if the split was restored; None: there are none.
        saver: saves the states of the split.
        included: number of rows after `start` that its digest has already. They are not verified.

    Raises:
        DatasetFnError: the dataset raised an error.
        SpecError: an element does not have the spec of the job.
        StateError: the rows after the restored state are not those of the request.
    """
    at = start = start or Prefix()
    checked = start if start.rows == request.prefix_rows else None
    differs: bool | None = None  # None during the replay
    reported = time.monotonic()
    if saver is not None:
        saver.is_paused = start.rows > 0
    for block in _encode_elements(request, split, counters, start, saver, included):
        if block.resume_token:
            yield block
            continue
        at = block.end_prefix
        checked = at if at.rows == request.prefix_rows else checked
        if at.rows <= request.start_row:
            counters.replayed_rows = at.rows - start.rows
            if time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                yield progress_report(at.rows)
            continue
        if differs is None:
            differs = _differs(request, checked, at, is_restored=start.rows > 0)
            block = replace(block, prefix_differs=differs)
            if saver is not None:
                saver.is_paused = False
        counters.rows += block.rows
        counters.bytes += block.nbytes
        yield block
    end = end_of(at, split.row)
    if differs is None:
        differs = _differs(request, checked, at, is_restored=start.rows > 0)
        end = replace(end, prefix_differs=differs)
    yield end


def _differs(
    request: worker_pb2.StreamRequest, checked: Prefix | None, at: Prefix, is_restored: bool
) -> bool:
    """Return whether the rows before the start are not those of the request.

    Args:
        request: request of the sidecar.
        checked: the first `request.prefix_rows` rows; None: the split has fewer.
        at: the rows that were produced.
        is_restored: whether other rows are an error of the saved state.
    """
    known = Prefix(request.prefix_rows, request.prefix_digest)
    differs = request.check_prefix and checked != known
    if is_restored and at.rows < request.start_row:
        raise StateError(f"the split ends at row {at.rows}")
    if is_restored and differs:
        raise StateError(f"the first {known.rows} rows differ from those sent before")
    return differs


def block_bytes(request: worker_pb2.StreamRequest) -> int:
    """Return the size of the largest block of a stream, unless a row is larger."""
    return max(BLOCK_BYTES, request.block_bytes)


def end_of(rows: Prefix, row: ElementSpec) -> RowBlock:
    """Return the last block of a split with these rows."""
    nothing = (np.zeros(0, np.uint8),) * row.buffer_count
    return RowBlock(rows.rows, 0, nothing, _NO_DIGESTS, last=True, prefix_digest=rows.digest)


def progress_report(rows: int) -> RowBlock:
    """Return a block without rows that reports the rows before the start that were produced."""
    return RowBlock(0, 0, (), _NO_DIGESTS, replayed=rows)


def _encode_elements(
    request: worker_pb2.StreamRequest,
    split: SplitIterator,
    counters: StreamCounters,
    at: Prefix,
    saver: StateSaver | None,
    included: int,
) -> Iterator[RowBlock]:
    """Yield the rows of each element of a split, cut at the rows that the request names.

    Args:
        request: request of the sidecar.
        split: the elements.
        counters: `busy_seconds` is updated.
        at: rows before the first element.
        saver: saves the state of the split between elements.
        included: number of rows after `at` that its digest has already.
    """
    columns = split.row.columns
    widths = [column.row_bytes for column in columns]
    of = Computed.of(request.job, request.epoch, request.split)
    taken, size = 0, 0  # size: rows of the last element
    with crash_notes.Note(of) as note:
        read = _reader(split, note)
        while True:
            token = saver.before_element(taken, at) if saver is not None else b""
            began = time.perf_counter()
            note.begin(at.rows, size)
            try:
                encoded = read(at.rows)
            except BaseException:
                # Contexts would take as long for each element as a cheap Python iterable.
                with _errors_at(split, of, at.rows):
                    raise
            finally:
                note.end()
            if encoded is None:
                return
            rows, buffers, hashes = encoded
            # TensorFlow computes one element ahead.
            size = rows if split.from_python else 2 * rows
            seconds = time.perf_counter() - began
            counters.busy_seconds += seconds
            taken += 1
            if rows and hashes is None:
                hashes = row_hashes(widths, buffers, rows)
            digests = digests_of(hashes, at.rows) if hashes is not None else _NO_DIGESTS
            if included:
                digests[:included] = 0
                included -= min(included, rows)
            if saver is not None:
                saver.add(rows, seconds)
            if token:
                yield RowBlock(0, 0, (), _NO_DIGESTS, resume_token=token)
            if rows:
                element = RowBlock(
                    at.rows,
                    rows,
                    tuple(buffers),
                    digests,
                    prefix_digest=at.digest,
                )
                for block in cut(element, columns, request):
                    at = block.end_prefix
                    yield block


def _reader(split: SplitIterator, note: Note) -> Callable[[int], EncodedRows | None]:
    """Return the function from the index of a row to the next rows from it on; None at the end."""
    encoder = split.encode or _in_python(split)
    if split.is_indexed and not split.batched:
        return JoinedRows(split.elements, encoder, note).next

    def read(_: int) -> EncodedRows | None:
        try:
            element = next(split.elements)
        except StopIteration:
            return None
        run = encoder(element)
        if split.from_python:
            return run._replace(buffers=[buffer.copy() for buffer in run.buffers])
        return run

    return read


def _in_python(split: SplitIterator) -> Callable[[Any], EncodedRows]:
    encoder = encode.make_encoder(split.row, split.batched, split.leaves_of)
    return lambda element: EncodedRows(*encoder(element))


@contextlib.contextmanager
def _errors_at(split: SplitIterator, of: Computed, row: int) -> Iterator[None]:
    """Raise errors of the dataset, and of an element's spec, with the place of the element."""
    place = f"row {row} of split {of.split}"
    try:
        with user_code.user_errors("the dataset", place):
            yield
    except SpecError as error:
        remedy = f". {PYTHON_REMEDY}" if split.from_python else ""
        raise SpecError(f"{place}: {str(error).rstrip('.')}{remedy}") from error


def cut(
    element: RowBlock, columns: Sequence[Column], request: worker_pb2.StreamRequest
) -> Iterator[RowBlock]:
    """Yield an element in parts: large ones are about a block, with at least one row.

    No part has rows on both sides of a row that the request names.
    """
    end, nbytes, most = element.end_row, element.nbytes, block_bytes(request)
    per_block = element.rows
    if nbytes >= 2 * most:
        per_block = max(1, element.rows * most // nbytes)
    named = {request.prefix_rows, request.start_row}
    bounds = sorted({element.first_row, end, *(row for row in named if row < end)})
    bounds = bounds[bounds.index(element.first_row) :]
    if len(bounds) == 2 and per_block == element.rows:
        yield element
        return
    offsets = row_offsets(columns, element.buffers)
    at = Prefix(element.first_row, element.prefix_digest)
    for _, bound in pairwise(bounds):
        while at.rows < bound:
            part = element.part(columns, at, min(per_block, bound - at.rows), offsets)
            yield part
            at = part.end_prefix
