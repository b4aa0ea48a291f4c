from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from distributed_input.api.proto import trainer_pb2
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import Column, ElementSpec, Leaf
from distributed_input.sidecar.delivery.slot_pool import ALIGN, SlotPool
from distributed_input.sidecar.delivery.unit_writer import UnitWriter

FIXED = (Column("a", 2), Column("b", 1))
VARIABLE = (Column("a", 2), Column("text", None))
NEVER = threading.Event()


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[SlotPool]:
    pool = SlotPool(tmp_path / "slots", 64 * ALIGN)
    pool.memory[:] = 255
    yield pool
    pool.close()


def writer(
    slots: SlotPool, columns: tuple[Column, ...], capacity: int = 4, *, lineage: bool = False
) -> UnitWriter:
    def allocate(size: int) -> int:
        slot = slots.allocate(size, 0.0, NEVER)
        assert slot is not None
        return slot

    return UnitWriter(slots, allocate, columns, capacity, lineage)


def block(*buffers: bytes, rows: int) -> RowBlock:
    views = tuple(np.frombuffer(buffer, np.uint8) for buffer in buffers)
    return RowBlock(0, rows, views, np.zeros(rows, np.uint64))


def lengths(*values: int) -> bytes:
    return np.array(values, np.uint32).tobytes()


def content(slots: SlotPool, unit: trainer_pb2.Unit) -> list[bytes]:
    """Return the unit's buffers, as a trainer reads them."""
    pairs = zip(unit.offsets, unit.sizes, strict=True)
    return [slots.memory[offset : offset + size].tobytes() for offset, size in pairs]


def test_fixed_columns_of_several_blocks_lie_one_behind_the_other(slots: SlotPool) -> None:
    unit = writer(slots, FIXED)
    unit.add(block(b"aabb", b"AB", rows=2))
    unit.add(block(b"cc", b"C", rows=1))
    sent = unit.finish(3, 5, None)
    assert content(slots, sent) == [b"aabbcc", b"ABC"]
    assert (sent.generation, sent.index, sent.rows, sent.empty) == (3, 5, 3, False)
    assert all(offset % ALIGN == 0 for offset in sent.offsets)


def test_variable_columns_of_several_blocks_lie_one_behind_the_other(slots: SlotPool) -> None:
    unit = writer(slots, VARIABLE)
    unit.add(block(b"aabb", lengths(1, 3), b"xyyy", rows=2))
    unit.add(block(b"cc", lengths(2), b"zz", rows=1))
    sent = unit.finish(0, 0, None)
    assert content(slots, sent) == [b"aabbcc", lengths(1, 3, 2), b"xyyyzz"]


@pytest.mark.parametrize(
    ("columns", "leaves", "buffers", "expected"),
    [
        (
            FIXED,
            [("dense", "int16", ()), ("dense", "int8", ())],
            (b"aa", b"A"),
            [b"aa" + bytes(6), b"A" + bytes(3)],
        ),
        (
            VARIABLE,
            [("dense", "int16", ()), ("ragged", "int8", (None,))],
            (b"aa", lengths(1), b"x"),
            [b"aa" + bytes(6), lengths(1, 0, 0, 0), b"x"],
        ),
    ],
    ids=["fixed", "variable"],
)
def test_a_padded_unit_is_full_of_zeros(
    slots: SlotPool,
    columns: tuple[Column, ...],
    leaves: list[tuple[str, str, tuple[int | None, ...]]],
    buffers: tuple[bytes, ...],
    expected: list[bytes],
) -> None:
    unit = writer(slots, columns)
    unit.add(block(*buffers, rows=1))
    spec = ElementSpec((), tuple(Leaf("", *leaf) for leaf in leaves))
    assert [one.row_bytes for one in spec.columns] == [one.row_bytes for one in columns]
    unit.pad(spec, None)
    assert unit.room == 0
    unit.pad(spec, None)
    assert content(slots, unit.finish(0, 0, None)) == expected


def test_a_unit_without_rows_has_a_slot(slots: SlotPool) -> None:
    sent = writer(slots, FIXED).finish(0, 0, None)
    assert sent.empty
    assert slots.slots == 1


def test_an_abandoned_unit_releases_its_slot_and_a_finished_one_does_not(slots: SlotPool) -> None:
    abandoned, finished = writer(slots, FIXED), writer(slots, FIXED)
    for unit in (abandoned, finished):
        unit.add(block(b"aa", b"A", rows=1))
    sent = finished.finish(0, 0, None)
    assert slots.slots == 2
    for unit in (abandoned, finished):
        unit.abandon()
        unit.abandon()
    assert slots.slots == 1
    slots.release(sent.slot)
    assert slots.slots == 0


def test_a_position_is_sent_along_only_if_there_is_one(slots: SlotPool) -> None:
    assert not writer(slots, FIXED).finish(0, 0, None).HasField("after")
    after = trainer_pb2.Position(step=3)
    assert writer(slots, FIXED).finish(0, 0, after).after == after


@pytest.mark.parametrize("before", [0, 1])
def test_a_column_without_bytes_takes_no_room(slots: SlotPool, before: int) -> None:
    for _ in range(before):
        writer(slots, (Column("a", 1),)).finish(0, 0, None)
    unit = writer(slots, (Column("none", 0), *FIXED), capacity=ALIGN)
    unit.add(block(b"", b"aa", b"A", rows=1))
    unit.pad(ElementSpec((), ()), None)
    sent = unit.finish(0, 0, None)
    assert content(slots, sent) == [b"", b"aa" + bytes(2 * ALIGN - 2), b"A" + bytes(ALIGN - 1)]
    assert slots.used == (before + 3) * ALIGN
    rest = [*slots.memory[: before * ALIGN], *slots.memory[slots.used :]]
    assert set(rest) == {255}, "other units are as they were"


def test_each_column_of_a_row_is_copied(slots: SlotPool) -> None:
    unit = writer(slots, (*FIXED, Column("text", None)))
    unit.add(block(b"aa", b"A", lengths(1), b"x", rows=1))
    assert content(slots, unit.finish(0, 0, None)) == [b"aa", b"A", lengths(1), b"x"]


def test_a_block_with_another_number_of_columns_is_an_error(slots: SlotPool) -> None:
    with pytest.raises(ValueError, match="shorter"):
        writer(slots, FIXED).add(block(b"aa", rows=1))


def test_a_unit_names_its_rows_on_request(slots: SlotPool) -> None:
    def rows(split: int, first_row: int, rows: int) -> RowBlock:
        values = block(b"aa" * rows, b"A" * rows, rows=rows)
        return replace(values, split=split, first_row=first_row)

    def add_all(unit: UnitWriter) -> list[tuple[int, int, int]]:
        for one in (rows(0, 3, 1), rows(0, 4, 1), rows(0, 7, 1), rows(2, 8, 1)):
            unit.add(one)
        unit.pad(ElementSpec((), ()), None)
        sent = unit.finish(0, 0, None)
        return [(one.split, one.first_row, one.rows) for one in sent.lineage]

    assert add_all(writer(slots, FIXED, 8)) == []
    named = writer(slots, FIXED, 8, lineage=True)
    assert add_all(named) == [(0, 3, 2), (0, 7, 1), (2, 8, 1)]
