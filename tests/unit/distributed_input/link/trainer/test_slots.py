"""A batch is a view of the slots, and its slot is released with the last reference to it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import numpy as np
import pytest

from distributed_input.api.errors import ProtocolError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.link.trainer.slots import Batch, Slots
from distributed_input.trainer.consumer import Consumer
from tests.unit.distributed_input.trainer.sidecars import SECONDS, Sidecar


def batch_of(folder: Path, released: list[int]) -> tuple[Slots, Batch]:
    path = folder / "slots"
    path.write_bytes(bytes(range(64)))
    slots = Slots(path, 64)
    return slots, slots.batch(
        trainer_pb2.Unit(slot=8, rows=2, offsets=[8, 16], sizes=[4, 2]), released.append
    )


def test_the_buffers_are_views_of_the_slots(tmp_path: Path) -> None:
    slots, batch = batch_of(tmp_path, [])
    assert batch.rows == 2
    assert [buffer.tolist() for buffer in batch.buffers] == [[8, 9, 10, 11], [16, 17]]
    addresses = [buffer.__array_interface__["data"][0] for buffer in batch.buffers]
    assert addresses == [slots.address + 8, slots.address + 16]


def test_the_arrays_of_a_batch_are_read_only(tmp_path: Path) -> None:
    _, batch = batch_of(tmp_path, [])
    with pytest.raises(ValueError, match="read-only"):
        batch.buffers[0][0] = 1


def test_a_slot_that_was_overwritten_shows_what_the_sidecar_writes_later(tmp_path: Path) -> None:
    slots, batch = batch_of(tmp_path, [])
    ctypes.memset(slots.address + 8, 1, 4)  # as TensorFlow does, which ignores the flag
    assert batch.buffers[0].tolist() == [1, 1, 1, 1]
    with (tmp_path / "slots").open("r+b") as sidecar:
        sidecar.seek(8)
        sidecar.write(b"abcd")
    assert batch.buffers[0].tobytes() == b"abcd"


def test_the_slot_is_released_once_with_the_last_view(tmp_path: Path) -> None:
    released: list[int] = []
    _, batch = batch_of(tmp_path, released)
    view = np.asarray(batch.buffers[1])[1:]
    del batch
    gc.collect()
    assert released == []
    del view
    gc.collect()
    assert released == [8]


def test_a_unit_without_buffers_is_released_too(tmp_path: Path) -> None:
    released: list[int] = []
    slots, batch = batch_of(tmp_path, [])
    batch = slots.batch(trainer_pb2.Unit(slot=8), released.append)
    assert batch == Batch(0, [])
    gc.collect()
    assert released == [8]


@pytest.mark.parametrize(
    "unit",
    [
        trainer_pb2.Unit(slot=8, offsets=[8], sizes=[57]),
        trainer_pb2.Unit(slot=8, offsets=[0], sizes=[4]),
        trainer_pb2.Unit(slot=2**40, offsets=[2**40], sizes=[1]),
        trainer_pb2.Unit(slot=65),
        trainer_pb2.Unit(slot=8, offsets=[8, 16], sizes=[4]),
    ],
    ids=["after its end", "before its slot", "far away", "empty", "sizes missing"],
)
def test_a_batch_outside_of_the_slots_is_refused(tmp_path: Path, unit: trainer_pb2.Unit) -> None:
    slots, _ = batch_of(tmp_path, [])
    with pytest.raises(ProtocolError, match="outside of its 64 bytes"):
        slots.batch(unit, list[int]().append)


def test_an_epoch_does_not_continue_behind_a_unit_outside_of_the_slots(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    reader = Consumer(tmp_path, "", SECONDS)
    reader.open(types_pb2.Job(), b"", 1)
    trainer = sidecar.trainer()
    generation = reader.begin()
    trainer.send(unit=trainer_pb2.Unit(generation=generation, rows=1, offsets=[1 << 20], sizes=[1]))
    trainer.unit(generation, 1)
    for _ in range(2):
        with pytest.raises(ProtocolError, match="outside of its 4,096 bytes"):
            next(reader.units(generation))
    assert reader.position().step == 0
    reader.close()
    sidecar.close()


def test_a_copy_can_be_written_and_holds_no_slot(tmp_path: Path) -> None:
    released: list[int] = []
    slots, batch = batch_of(tmp_path, released)
    copied = batch.copied()
    del batch
    gc.collect()
    assert released == [8]
    assert copied.rows == 2
    for buffer in copied.buffers:
        assert buffer.__array_interface__["data"][0] % 64 == 0, "TensorFlow reads it in place"
        buffer += 1
    assert [buffer.tolist() for buffer in copied.buffers] == [[9, 10, 11, 12], [17, 18]]
    assert bytes((ctypes.c_char * 10).from_address(slots.address + 8)) == bytes(range(8, 18))
