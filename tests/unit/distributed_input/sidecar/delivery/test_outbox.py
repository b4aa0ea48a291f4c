from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, UnavailableError, from_kind
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.api.protocol import TO_TRAINER_BYTES
from distributed_input.link.errors import Cancelled
from distributed_input.sidecar.delivery import outbox as module
from distributed_input.sidecar.delivery.outbox import UnitOutbox, failure_message
from distributed_input.sidecar.delivery.slot_pool import ALIGN, SlotPool
from tests.unit.distributed_input.positions import largest_position
from tests.unit.distributed_input.sidecar.delivery.sockets import Trainer

NEVER = threading.Event()
SIZE = 64 * ALIGN
END = trainer_pb2.FromSidecar(end=trainer_pb2.EpochEnd(generation=1))


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    trainer = Trainer()
    yield trainer
    trainer.close()


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[SlotPool]:
    pool = SlotPool(tmp_path / "slots", 64 * ALIGN)
    yield pool
    pool.close()


@pytest.fixture
def outbox(trainer: Trainer, slots: SlotPool) -> UnitOutbox:
    return UnitOutbox(trainer.socket, slots)


def unit(slots: SlotPool, index: int, size: int = 8) -> trainer_pb2.Unit:
    slot = slots.allocate(8, 0.0, NEVER)
    assert slot is not None
    return trainer_pb2.Unit(generation=1, index=index, rows=2, slot=slot, sizes=[size])


class Blocked:
    """The first message of an outbox, which its thread sends only once `go` is set."""

    def __init__(self, trainer: Trainer, outbox: UnitOutbox, unit: trainer_pb2.Unit) -> None:
        self.go, self._begun, self._send = threading.Event(), threading.Event(), trainer.socket.send
        trainer.socket.send = self._late
        outbox.send_unit(unit, NEVER)
        self.thread = threading.Thread(target=outbox.flush, args=(NEVER,))
        self.thread.start()
        assert self._begun.wait(10)

    def _late(self, message: trainer_pb2.FromSidecar, cancelled: threading.Event) -> None:
        if not self._begun.is_set():
            self._begun.set()
            self.go.wait(10)
        self._send(message, cancelled)


def test_messages_of_several_threads_keep_their_order(
    outbox: UnitOutbox, trainer: Trainer, slots: SlotPool
) -> None:
    blocked = Blocked(trainer, outbox, unit(slots, 0))
    other = threading.Thread(target=outbox.send, args=(END, NEVER))
    other.start()
    other.join(0.2)  # it waits: no message may overtake the unit
    assert not trainer.has_message()
    blocked.go.set()
    first, second = trainer.receive(), trainer.receive()
    assert first is not None
    assert first.HasField("unit")
    assert second == END
    for thread in (blocked.thread, other):
        thread.join(10)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_cancelled_thread_does_not_wait_for_another_one(
    trainer: Trainer, slots: SlotPool, keeps: bool
) -> None:
    outbox = UnitOutbox(trainer.socket, slots, keeps_unsent=keeps)
    blocked = Blocked(trainer, outbox, unit(slots, 0))
    outbox.send_unit(unit(slots, 1), NEVER)
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        outbox.send(END, cancelled)
    assert slots.slots == (2 if keeps else 1)
    blocked.go.set()
    blocked.thread.join(10)
    if keeps:
        outbox.flush(NEVER)
        messages = [trainer.receive() for _ in range(3)]
        assert [one.unit.index for one in messages[:2] if one is not None] == [0, 1]
        assert messages[2] == END


def test_small_units_are_sent_together_before_another_message(
    outbox: UnitOutbox, trainer: Trainer, slots: SlotPool
) -> None:
    units = [unit(slots, i) for i in range(3)]
    for one in units:
        outbox.send_unit(one, NEVER)
    assert outbox.has_unsent
    assert not trainer.has_message()
    outbox.send(END, NEVER)
    together = trainer_pb2.Units(units=units)
    assert trainer.receive() == trainer_pb2.FromSidecar(units=together)
    assert trainer.receive() == END
    assert not outbox.has_unsent


def test_a_large_unit_is_sent_at_once(
    outbox: UnitOutbox, trainer: Trainer, slots: SlotPool
) -> None:
    large = unit(slots, 0, module._SMALL_BYTES)
    outbox.send_unit(large, NEVER)
    assert trainer.receive() == trainer_pb2.FromSidecar(unit=large)


def test_many_small_units_are_sent_without_a_flush(
    outbox: UnitOutbox, trainer: Trainer, slots: SlotPool
) -> None:
    for i in range(module._PENDING_UNITS):
        outbox.send_unit(unit(slots, i), NEVER)
    message = trainer.receive()
    assert message is not None
    assert len(message.units.units) == module._PENDING_UNITS


def test_units_with_the_largest_positions_fit_into_packets(
    outbox: UnitOutbox, trainer: Trainer, slots: SlotPool
) -> None:
    """1,024 partitions may be open."""
    units = [unit(slots, i) for i in range(module._PENDING_UNITS)]
    for one in units:
        one.after.CopyFrom(largest_position())
    assert sum(one.ByteSize() for one in units) > 2 * TO_TRAINER_BYTES
    received: list[trainer_pb2.Unit] = []

    def receive() -> None:
        while len(received) < len(units):
            message = trainer.receive()
            assert message is not None
            received.extend([message.unit] if message.HasField("unit") else message.units.units)

    receiving = threading.Thread(target=receive, daemon=True)
    receiving.start()
    for one in units:
        outbox.send_unit(one, NEVER)
    receiving.join(10)
    assert received == units


@pytest.mark.parametrize(("spare", "count"), [(0, 2), (-1, 1)])
def test_a_packet_is_filled_up_to_its_limit(spare: int, count: int) -> None:
    """Each field has a tag and a length, of 8 bytes in all."""
    units = [trainer_pb2.Unit(index=1) for _ in range(3)]
    free = TO_TRAINER_BYTES - 3 * 8 - units[0].ByteSize() - spare
    units[1].after.job = "x" * (free - 12)
    units[1].after.job += "x" * (free - units[1].ByteSize())
    assert units[1].ByteSize() == free
    assert module._count_in_packet(units) == count


def test_a_unit_that_is_too_long_is_alone_in_its_packet() -> None:
    long = trainer_pb2.Unit(after=trainer_pb2.Position(job="x" * TO_TRAINER_BYTES))
    assert module._count_in_packet([long, long]) == 1


def test_units_behind_a_cancelled_packet_release_their_slots(
    outbox: UnitOutbox, trainer: Trainer, slots: SlotPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The units of the packets before are with the trainer."""
    cancelled = threading.Event()
    units = [unit(slots, i) for i in range(3)]
    for one in units:
        one.after.CopyFrom(largest_position())
        one.after.job = "x" * (TO_TRAINER_BYTES // 2)
        outbox.send_unit(one, cancelled)
    real = trainer.socket.send

    def send(message: trainer_pb2.FromSidecar, event: threading.Event) -> None:
        real(message, event)
        cancelled.set()

    monkeypatch.setattr(trainer.socket, "send", send)
    with pytest.raises(Cancelled):
        outbox.flush(cancelled)
    assert trainer.receive() == trainer_pb2.FromSidecar(unit=units[0])
    assert slots.slots == 1


def test_a_unit_that_is_too_long_is_an_error(outbox: UnitOutbox, slots: SlotPool) -> None:
    long = unit(slots, 0)
    long.sizes.extend([1 << 40] * (TO_TRAINER_BYTES // 5))
    with pytest.raises(ConfigError, match="too many components"):
        outbox.send_unit(long, NEVER)
    assert slots.slots == 0


def test_the_trainer_releases_only_slots_that_it_holds(outbox: UnitOutbox, slots: SlotPool) -> None:
    held, other = unit(slots, 0), unit(slots, 1)
    outbox.send_unit(held, NEVER)
    outbox.release([held.slot, other.slot, held.slot])
    assert slots.slots == 1
    assert not outbox.holds_slots
    slots.release(other.slot)
    assert slots.slots == 0


def test_units_that_cannot_be_sent_release_their_slots(
    outbox: UnitOutbox, trainer: Trainer, slots: SlotPool
) -> None:
    outbox.send_unit(unit(slots, 0), NEVER)
    trainer.socket.closed.set()
    with pytest.raises(Cancelled):
        outbox.send_unit(unit(slots, 1), NEVER)
    assert slots.slots == 0


def test_all_slots_are_released_once_the_trainer_is_gone(
    outbox: UnitOutbox, slots: SlotPool
) -> None:
    for i in range(3):
        outbox.send_unit(unit(slots, i), NEVER)
    assert outbox.holds_slots
    outbox.release_all()
    assert slots.slots == 0
    assert not outbox.holds_slots


def test_progress_acknowledges_units_and_ends_a_wait(outbox: UnitOutbox, slots: SlotPool) -> None:
    outbox.send_unit(unit(slots, 0), NEVER)
    outbox.record_progress(trainer_pb2.Progress(waiting=True))
    assert outbox.trainer_waits
    assert outbox.acks.units == 0
    done = trainer_pb2.Progress(generation=1, units=1, wait_seconds=2, wall_seconds=3)
    outbox.record_progress(done)
    assert not outbox.trainer_waits
    outbox.record_progress(trainer_pb2.Progress(waiting=True))
    times = outbox.times()
    assert (outbox.acks.units, times.wait_seconds, times.wall_seconds) == (1, 2, 3)
    assert times.received is None
    received = types_pb2.ReceivedTotals(trainer="t", rows=2)
    outbox.record_progress(trainer_pb2.Progress(generation=1, units=1, received=received))
    assert outbox.times().received == received


def test_a_wait_counts_until_the_trainer_is_gone(
    outbox: UnitOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    outbox.record_progress(trainer_pb2.Progress(waiting=True, wait_seconds=2, wall_seconds=3))
    now += 60.0
    outbox.end_times()
    now += 60.0
    assert (outbox.times().wait_seconds, outbox.times().wall_seconds) == (62.0, 63.0)


def test_a_wait_is_reported_only_to_a_trainer_that_waits(
    outbox: UnitOutbox, trainer: Trainer
) -> None:
    outbox.report_wait("rows", NEVER)
    assert not trainer.has_message()
    outbox.record_progress(trainer_pb2.Progress(waiting=True))
    outbox.report_wait("rows", NEVER)
    message = trainer.receive()
    assert message is not None
    assert message.waiting.what == "rows"


def test_a_trainer_pauses_if_it_neither_reads_nor_waits_for_some_seconds(
    outbox: UnitOutbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    now += 60.0
    assert not outbox.trainer_pauses, "it has read nothing yet"
    outbox.record_progress(trainer_pb2.Progress(generation=1, units=1))
    now += 3.9
    assert not outbox.trainer_pauses, "it may wait for a unit, and will report it"
    now += 0.2
    assert outbox.trainer_pauses
    outbox.record_progress(trainer_pb2.Progress(generation=1, waiting=True))
    now += 60.0
    assert not outbox.trainer_pauses, "it waits"


def test_an_allocation_first_sends_the_units_kept_back(outbox: UnitOutbox) -> None:
    cancelled = threading.Event()
    first = outbox.allocate(SIZE, cancelled, 10.0)
    outbox.send_unit(trainer_pb2.Unit(slot=first, sizes=[SIZE]), cancelled)
    threading.Timer(0.1, outbox.release, [[first]]).start()
    assert outbox.allocate(SIZE, cancelled, 10.0) == first
    assert not outbox.has_unsent


def test_a_trainer_that_waits_and_holds_all_slots_gets_an_error(outbox: UnitOutbox) -> None:
    cancelled = threading.Event()
    for _ in range(64):
        outbox.allocate(ALIGN, cancelled, 0.0)
    outbox.record_progress(trainer_pb2.Progress(waiting=True))
    with pytest.raises(UnavailableError, match=r"holds all 64 batches .*spec\.sidecar\.buffer"):
        outbox.allocate(ALIGN, cancelled, 0.0)


def test_a_cancelled_allocation_ends(outbox: UnitOutbox) -> None:
    cancelled = threading.Event()
    outbox.allocate(SIZE, cancelled, 10.0)
    cancelled.set()
    with pytest.raises(Cancelled):
        outbox.allocate(ALIGN, cancelled, 10.0)


def test_the_trainer_can_raise_the_same_error() -> None:
    failure = failure_message(ConfigError("spec.epochs: wrong"), 3).failure
    error = from_kind(failure.kind, failure.message)
    assert (type(error), str(error), failure.generation) == (ConfigError, "spec.epochs: wrong", 3)


@pytest.mark.parametrize("character", ["x", "数", "\udcff"], ids=["1", "3", "6 bytes"])
def test_a_long_error_fits_into_a_packet(character: str) -> None:
    message = failure_message(ConfigError("row 7: " + character * 1_000_000))
    assert message.ByteSize() <= TO_TRAINER_BYTES
    assert message.failure.message.startswith("row 7: ")
    assert message.failure.kind == "ConfigError"
