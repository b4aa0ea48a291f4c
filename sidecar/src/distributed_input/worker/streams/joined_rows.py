"""Joins rows that Python returns one by one: each hand-over costs more than many such rows do.

Rows are joined only where more rows are there for the asking, as those that are read by index. A
Python iterable may wait for the next one, and the rows before it must not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from distributed_input.graph.native_ops import EncodedRows
from distributed_input.rows.runs import Bytes
from distributed_input.worker.crash_notes import Note

SECONDS = 0.002
"""Rows are joined for this time; the last one may take longer."""
_BYTES = 1 << 18


class JoinedRows:
    """The rows of elements that Python returns, joined.

    Args:
        elements: the elements, each of which is one row. They may all be in the same memory.
        encoder: from an element to its row.
        note: gets the row that is computed.
        clock: time in seconds.
    """

    def __init__(
        self,
        elements: Iterator[Any],
        encoder: Callable[[Any], EncodedRows],
        note: Note,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._elements, self._encoder = elements, encoder
        self._note, self._clock = note, clock
        self._error: BaseException | None = None

    def next(self, row: int) -> EncodedRows | None:
        """Return the next rows, at least one; None at the end.

        Args:
            row: index of the first of them.

        Raises:
            Exception: that of the first row, whose index is `row`.
        """
        if self._error is not None:
            raise self._error
        rows: list[list[Bytes]] = []
        size = 0
        began = self._clock()
        while size < _BYTES and (not rows or self._clock() - began < SECONDS):
            self._note.begin(row + len(rows), 1)
            try:
                encoded = self._encoder(next(self._elements))
            except StopIteration:
                break
            except BaseException as error:
                if not rows:
                    raise
                self._error = error
                break
            rows.append([buffer.copy() for buffer in encoded.buffers])
            size += sum(map(len, encoded.buffers))
        if not rows:
            return None
        joined = rows[0]
        if len(rows) > 1:
            joined = [np.concatenate(column) for column in zip(*rows, strict=True)]
        return EncodedRows(len(rows), joined, None)
