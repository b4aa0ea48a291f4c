from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import trainer_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.sidecar.delivery.outbox import UnitOutbox
from distributed_input.sidecar.delivery.slot_allocation import SlotAllocation
from distributed_input.sidecar.delivery.slot_pool import ALIGN, SlotPool
from tests.unit.distributed_input.sidecar.delivery.sockets import Trainer

SIZE = 4 * ALIGN


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[SlotPool]:
    pool = SlotPool(tmp_path / "slots", SIZE)
    yield pool
    pool.close()


@pytest.fixture
def outbox(slots: SlotPool) -> Iterator[UnitOutbox]:
    trainer = Trainer()
    yield UnitOutbox(trainer.socket, slots)
    trainer.close()


def test_an_allocation_first_sends_the_units_kept_back(slots: SlotPool, outbox: UnitOutbox) -> None:
    cancelled = threading.Event()
    allocation = SlotAllocation(slots, outbox, cancelled, 10.0)
    first = allocation.allocate(SIZE)
    outbox.send_unit(trainer_pb2.Unit(slot=first, sizes=[SIZE]), cancelled)
    threading.Timer(0.1, outbox.release, [[first]]).start()
    assert allocation.allocate(SIZE) == first
    assert not outbox.has_unsent


def test_a_trainer_that_waits_and_holds_all_slots_gets_an_error(
    slots: SlotPool, outbox: UnitOutbox
) -> None:
    allocation = SlotAllocation(slots, outbox, threading.Event(), 0.0)
    for _ in range(4):
        allocation.allocate(ALIGN)
    outbox.record_progress(trainer_pb2.Progress(waiting=True))
    with pytest.raises(UnavailableError, match=r"holds all 4 batches .*spec\.sidecar\.buffer"):
        allocation.allocate(ALIGN)


def test_a_cancelled_allocation_ends(slots: SlotPool, outbox: UnitOutbox) -> None:
    cancelled = threading.Event()
    allocation = SlotAllocation(slots, outbox, cancelled, 10.0)
    allocation.allocate(SIZE)
    cancelled.set()
    with pytest.raises(Cancelled):
        allocation.allocate(ALIGN)
