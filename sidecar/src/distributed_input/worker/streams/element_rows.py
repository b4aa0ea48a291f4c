"""Rows as encoded from a dataset's elements, cut into blocks of at most about one message."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import SpecError
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows import encode
from distributed_input.rows.digest import row_digests
from distributed_input.rows.elements import Column
from distributed_input.rows.runs import Bytes, Offsets, row_offsets, slice_run
from distributed_input.tfdata import user_code
from distributed_input.worker import crash_notes
from distributed_input.worker.crash_notes import UNNAMED, Computed
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.states.state_saver import StateSaver

_NO_DIGESTS: NDArray[np.uint64] = np.zeros(0, np.uint64)
PYTHON_REMEDY = (
    "A Python iterable without `element_spec` has the spec of its first element. Make all elements"
    " alike, or set `element_spec` on the entry point's function, for example"
    ' {"value": tf.TensorSpec([], tf.float32)}'
)


@dataclass(frozen=True)
class ElementRows:
    """Consecutive rows of a split, encoded from one element.

    Attributes:
        first_row: index of the first row in the split.
        buffers: the rows as a run; see `distributed_input.rows`.
        digests: uint64, one for each row.
        seconds: time spent producing and encoding the rows.
    """

    first_row: int
    buffers: Sequence[Bytes]
    digests: NDArray[np.uint64]
    seconds: float

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return len(self.digests)

    @property
    def nbytes(self) -> int:
        """Return the size of the rows in bytes."""
        return sum(buffer.nbytes for buffer in self.buffers)

    def slice(
        self,
        columns: Sequence[Column],
        start: int,
        stop: int,
        seconds: float,
        offsets: Sequence[Offsets] | None = None,
    ) -> ElementRows:
        """Return rows [start, stop) of these rows, as views, with the given time."""
        return ElementRows(
            self.first_row + start,
            slice_run(columns, self.buffers, start, stop, offsets),
            self.digests[start:stop],
            seconds,
        )


def encode_elements(
    split: SplitIterator,
    counters: StreamCounters,
    first_row: int = 0,
    saver: StateSaver | None = None,
    of: Computed = UNNAMED,
) -> Iterator[ElementRows]:
    """Yield the rows of each element of a split.

    Args:
        split: the elements.
        counters: `busy_seconds` is updated.
        first_row: index of the first row of the first element.
        saver: saves the state of the split between elements.
        of: names the split, for errors.

    Raises:
        DatasetFnError: the dataset raised an error.
        SpecError: an element does not have the spec of the job.
    """
    encoder = encode.make_encoder(split.row, split.batched, split.leaves_of)
    widths = [column.row_bytes for column in split.row.columns]
    taken, size = 0, 0  # size: rows of the last element
    with crash_notes.Note(of) as note:
        while True:
            if saver is not None:
                saver.before_element(taken)
            began = time.perf_counter()
            note.begin(first_row, size)
            try:
                encoded = _next(split, encoder)
            except BaseException:
                # Contexts would take as long for each element as a cheap Python iterable.
                with _errors_at(split, of, first_row):
                    raise
            finally:
                note.end()
            if encoded is None:
                return
            rows, buffers = encoded
            # TensorFlow computes one element ahead.
            size = rows if split.from_python else 2 * rows
            seconds = time.perf_counter() - began
            counters.busy_seconds += seconds
            taken += 1
            digests = _NO_DIGESTS
            if rows:
                digests = row_digests(widths, buffers, rows, first_row)
            if saver is not None:
                saver.add(digests, seconds)
            if rows:
                yield ElementRows(first_row, buffers, digests, seconds)
                first_row += rows


def _next(split: SplitIterator, encoder: encode.Encoder) -> tuple[int, list[Bytes]] | None:
    """Return the number of rows of the next element, and their buffers; None at the end."""
    try:
        element = next(split.elements)
    except StopIteration:
        return None
    rows, buffers = encoder(element)
    return rows, [buffer.copy() for buffer in buffers] if split.from_python else buffers


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


def cut_rows(
    rows: ElementRows, columns: Sequence[Column], block_bytes: int
) -> Iterator[ElementRows]:
    """Yield large rows in parts of about `block_bytes`, with at least one row each."""
    nbytes = rows.nbytes
    per_block = max(1, rows.rows * block_bytes // max(1, nbytes))
    if nbytes < 2 * block_bytes or rows.rows <= per_block:
        yield rows
        return
    offsets = row_offsets(columns, rows.buffers)
    for start in range(0, rows.rows, per_block):
        stop = min(rows.rows, start + per_block)
        seconds = rows.seconds * (stop - start) / rows.rows
        yield rows.slice(columns, start, stop, seconds, offsets)
