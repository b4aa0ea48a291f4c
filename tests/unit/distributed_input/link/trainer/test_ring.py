"""A batch is a view of the ring, and its slot is released with the last reference to it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import numpy as np
import pytest

from distributed_input.api.errors import ProtocolError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.client.reader import InputReader
from distributed_input.link.trainer.ring import Batch, Ring
from tests.unit.distributed_input.client.sidecars import SECONDS, Sidecar


class Owner:
    def __init__(self) -> None:
        self.released: list[int] = []

    def release(self, slot: int) -> None:
        self.released.append(slot)


def batch_of(folder: Path, owner: Owner) -> tuple[Ring, Batch]:
    path = folder / "ring"
    path.write_bytes(bytes(range(64)))
    ring = Ring(path, 64)
    return ring, ring.batch(trainer_pb2.Unit(slot=8, rows=2, offsets=[8, 16], sizes=[4, 2]), owner)


def test_the_buffers_are_views_of_the_ring(tmp_path: Path) -> None:
    ring, batch = batch_of(tmp_path, Owner())
    assert batch.rows == 2
    assert [buffer.tolist() for buffer in batch.buffers] == [[8, 9, 10, 11], [16, 17]]
    addresses = [buffer.__array_interface__["data"][0] for buffer in batch.buffers]
    assert addresses == [ring.address + 8, ring.address + 16]


def test_the_arrays_of_a_batch_are_read_only(tmp_path: Path) -> None:
    _, batch = batch_of(tmp_path, Owner())
    with pytest.raises(ValueError, match="read-only"):
        batch.buffers[0][0] = 1


def test_a_slot_that_was_overwritten_shows_what_the_sidecar_writes_later(tmp_path: Path) -> None:
    ring, batch = batch_of(tmp_path, Owner())
    ctypes.memset(ring.address + 8, 1, 4)  # as TensorFlow does, which ignores the flag
    assert batch.buffers[0].tolist() == [1, 1, 1, 1]
    with (tmp_path / "ring").open("r+b") as sidecar:
        sidecar.seek(8)
        sidecar.write(b"abcd")
    assert batch.buffers[0].tobytes() == b"abcd"


def test_the_slot_is_released_once_with_the_last_view(tmp_path: Path) -> None:
    owner = Owner()
    _, batch = batch_of(tmp_path, owner)
    view = np.asarray(batch.buffers[1])[1:]
    del batch
    gc.collect()
    assert owner.released == []
    del view
    gc.collect()
    assert owner.released == [8]


def test_a_unit_without_buffers_is_released_too(tmp_path: Path) -> None:
    owner = Owner()
    ring, batch = batch_of(tmp_path, Owner())
    batch = ring.batch(trainer_pb2.Unit(slot=8), owner)
    assert batch == Batch(0, [])
    gc.collect()
    assert owner.released == [8]


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
def test_a_batch_outside_of_the_ring_is_refused(tmp_path: Path, unit: trainer_pb2.Unit) -> None:
    ring, _ = batch_of(tmp_path, Owner())
    with pytest.raises(ProtocolError, match="outside of its 64 bytes"):
        ring.batch(unit, Owner())


def test_an_epoch_does_not_continue_behind_a_unit_outside_of_the_ring(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path)
    reader = InputReader(tmp_path, "", SECONDS)
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
