"""The writer that copies the rows of one unit, once, into the slot that a trainer reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distributed_input.api.proto import trainer_pb2
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import Column, ElementSpec
from distributed_input.rows.encode import zero_rows
from distributed_input.rows.runs import Bytes
from distributed_input.sidecar.delivery.slot_pool import SlotPool, aligned

Allocate = Callable[[int], int]
"""Function from a number of bytes to the offset of a slot. It raises if there is no slot."""


class UnitWriter:
    """The rows of one unit.

    Fixed-width columns are copied as rows arrive, so that at most one block of each partition is
    kept outside the slot. If a column varies in width, the slot's size is known only at the end.

    Args:
        slots: pool that the slot belongs to.
        allocate: function that allocates a slot in it.
        columns: columns of a row.
        capacity: rows of a full unit.
        lineage: whether the unit names its rows.

    Attributes:
        rows: rows added so far.
        capacity: rows of a full unit.
        after: position after this unit, if it is within a step.
    """

    def __init__(
        self,
        slots: SlotPool,
        allocate: Allocate,
        columns: Sequence[Column],
        capacity: int,
        lineage: bool = False,
    ) -> None:
        self.rows = 0
        self.capacity = capacity
        self.after: trainer_pb2.Position | None = None
        self._slots = slots
        self._allocate = allocate
        self._widths = [column.row_bytes for column in columns]
        self._fixed = None not in self._widths
        self._pieces: list[Sequence[Bytes]] = []
        self._offsets: list[int] = []
        self._slot: int | None = None
        self._lineage: list[trainer_pb2.RowRange] | None = [] if lineage else None

    @property
    def room(self) -> int:
        """Number of rows that still fit."""
        return self.capacity - self.rows

    def add(self, block: RowBlock) -> None:
        """Append a block of at most `room` rows."""
        if self._lineage is not None:
            self._name_rows(self._lineage, block)
        if not self._fixed:
            self._pieces.append(block.buffers)
        else:
            self._reserve_fixed()
            for offset, width, data in zip(self._offsets, self._widths, block.buffers, strict=True):
                at = offset + self.rows * (width or 0)
                self._slots.memory[at : at + data.nbytes] = data
        self.rows += block.rows

    @staticmethod
    def _name_rows(ranges: list[trainer_pb2.RowRange], block: RowBlock) -> None:
        """Add the rows of a block to the last range that they continue, or as another one."""
        last = ranges[-1] if ranges else trainer_pb2.RowRange()
        if (last.split, last.first_row + last.rows) == (block.split, block.first_row) and ranges:
            last.rows += block.rows
        else:
            ranges.append(
                trainer_pb2.RowRange(split=block.split, first_row=block.first_row, rows=block.rows)
            )

    def pad(self, spec: ElementSpec, like: RowBlock | None) -> None:
        """Fill the unit up with rows of zeros.

        Args:
            spec: spec of a row.
            like: its last row has the shape of the rows, if the spec does not have it.
        """
        missing = self.room
        if self._fixed:
            self._reserve_fixed()
            for offset, width in zip(self._offsets, self._widths, strict=True):
                start = offset + self.rows * (width or 0)
                self._slots.memory[start : offset + self.capacity * (width or 0)] = 0
        else:
            self._pieces.append(zero_rows(spec, missing, like))
        self.rows = self.capacity

    def finish(
        self, generation: int, index: int, after: trainer_pb2.Position | None
    ) -> trainer_pb2.Unit:
        """Return the complete unit. A unit without rows has a slot too.

        The receiver of the unit now has to release the slot.

        Args:
            generation: generation that the unit belongs to.
            index: index of the unit in its generation.
            after: position once this unit is consumed, if it is sent along.
        """
        if self._fixed:
            self._reserve_fixed()
            sizes = [self.rows * (width or 0) for width in self._widths]
        else:
            sizes = self._copy_pieces()
        assert self._slot is not None
        slot, self._slot = self._slot, None
        return trainer_pb2.Unit(
            generation=generation,
            index=index,
            rows=self.rows,
            slot=slot,
            offsets=self._offsets,
            sizes=sizes,
            after=after,
            empty=not self.rows,
            lineage=self._lineage,
        )

    def abandon(self) -> None:
        """Release the slot of a unit that will not be sent. Do nothing after `finish`."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._slots.release(slot)

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
                self._slots.memory[at : at + piece[i].nbytes] = piece[i]
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
