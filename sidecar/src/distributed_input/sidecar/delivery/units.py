"""Rows from many blocks, copied once into the slot that a trainer reads in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from distributed_input.api.proto import trainer_pb2
from distributed_input.rows.elements import Column
from distributed_input.rows.runs import Bytes, slice_run
from distributed_input.sidecar.delivery.slot_pool import Ring, aligned
from distributed_input.sidecar.streams.streams import Run

Allocate = Callable[[int], int]
"""Bytes wanted -> offset of the slot; raises where none is to be had."""


@dataclass(frozen=True)
class FilledUnit:
    """A unit in the ring: where its buffers are, in the order of the row spec's columns."""

    rows: int
    slot: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


class UnitWriter:
    """Collects the rows of one unit.

    Fixed-width columns are copied as they arrive, so that no more than a block a partition is
    held outside the ring; where a column varies the slot's size is known only at the end.

    Args:
        ring: where to.
        allocate: gets a slot of so many bytes in it.
        columns: of a row.
        capacity: rows of a full unit.
    """

    def __init__(
        self, ring: Ring, allocate: Allocate, columns: Sequence[Column], capacity: int
    ) -> None:
        self.rows = 0
        self.capacity = capacity
        self.after: trainer_pb2.Position | None = None  # behind this unit, within a step
        self._ring = ring
        self._allocate = allocate
        self._columns = columns
        self._widths = [column.row_bytes for column in columns]
        self._fixed = None not in self._widths
        self._pieces: list[list[Bytes]] = []
        self._offsets: list[int] = []
        self._slot: int | None = None

    @property
    def room(self) -> int:
        """Rows that still fit."""
        return self.capacity - self.rows

    def add(self, run: Run) -> None:
        """Append a run of at most `room` rows."""
        pieces = slice_run(self._columns, run.block.buffers, run.start, run.stop)
        if not self._fixed:
            self._pieces.append(pieces)
        else:
            self._reserve_fixed()
            for offset, width, piece in zip(self._offsets, self._widths, pieces, strict=True):
                at = offset + self.rows * (width or 0)
                self._ring.memory[at : at + piece.nbytes] = piece
        self.rows += run.rows

    def pad(self) -> None:
        """Fill up with rows of zeros (and, where a column varies, of no bytes)."""
        missing = self.room
        if not missing:
            return
        if self._fixed:
            self._reserve_fixed()
            for offset, width in zip(self._offsets, self._widths, strict=True):
                start = offset + self.rows * (width or 0)
                self._ring.memory[start : offset + self.capacity * (width or 0)] = 0
        else:
            zeros: list[Bytes] = []
            for width in self._widths:
                zeros.append(np.zeros(missing * (4 if width is None else width), np.uint8))
                if width is None:
                    zeros.append(np.zeros(0, np.uint8))
            self._pieces.append(zeros)
        self.rows = self.capacity

    def finish(self) -> FilledUnit:
        """The unit, complete. A unit without rows is a slot of its own too."""
        if self._fixed:
            self._reserve_fixed()
            sizes = [self.rows * (width or 0) for width in self._widths]
        else:
            sizes = self._copy_pieces()
        assert self._slot is not None
        return FilledUnit(self.rows, self._slot, tuple(self._offsets), tuple(sizes))

    def abandon(self) -> None:
        """Give back what was reserved: these rows will not be delivered. Nothing once `sent`."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._ring.release(slot)

    def sent(self) -> None:
        """The slot is the trainer's now."""
        self._slot = None

    def _reserve_fixed(self) -> None:
        if self._slot is None:
            self._reserve([self.capacity * (width or 0) for width in self._widths])

    def _copy_pieces(self) -> list[int]:
        count = sum(2 if width is None else 1 for width in self._widths)
        sizes = [sum(piece[i].nbytes for piece in self._pieces) for i in range(count)]
        self._reserve(sizes)
        for i, offset in enumerate(self._offsets):
            at = offset
            for piece in self._pieces:
                self._ring.memory[at : at + piece[i].nbytes] = piece[i]
                at += piece[i].nbytes
        self._pieces.clear()
        return sizes

    def _reserve(self, sizes: Sequence[int]) -> None:
        offsets, total = [], 0
        for size in sizes:
            offsets.append(total)
            total += aligned(size)
        self._slot = self._allocate(total)
        self._offsets = [self._slot + offset for offset in offsets]
