"""Readers of the same units: each gets what is behind its place, and the last one releases."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.api.proto import trainer_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.link.trainer import packet_socket
from distributed_input.link.trainer.sidecar_end import TrainerSocket
from distributed_input.sidecar.delivery import outbox as module
from distributed_input.sidecar.delivery.outbox import UnitOutbox, failure_message
from distributed_input.sidecar.delivery.shared_outbox import Place, Reader, SharedOutbox
from distributed_input.sidecar.delivery.slot_pool import SlotPool

NEVER = threading.Event()


@dataclass
class Group:
    """Readers of the ranks 0 and 1, and the other ends of their sockets."""

    slots: SlotPool
    waiting: dict[str, str]
    outbox: SharedOutbox
    readers: list[Reader]
    sockets: list[TrainerSocket]
    ends: list[socket.socket]

    def send(self, *units: int, generation: int = 1) -> None:
        """Send units of a pass that begins at unit 0, each in a slot of its own."""
        for index in units:
            slot = self.slots.allocate(64, 0.0, NEVER)
            assert slot is not None
            unit = trainer_pb2.Unit(generation=generation, index=index, slot=slot, rows=2)
            self.outbox.send_unit(unit, NEVER)
        self.outbox.flush(NEVER)

    def received(self, rank: int) -> list[trainer_pb2.FromSidecar]:
        """Return the messages that a reader has got, one for each unit."""
        found: list[trainer_pb2.FromSidecar] = []
        end = self.ends[rank]
        end.setblocking(False)
        while True:
            try:
                message = trainer_pb2.FromSidecar.FromString(end.recv(1 << 16))
            except BlockingIOError:
                return found
            units = message.units.units or [message.unit] if not message.HasField("end") else []
            found += [trainer_pb2.FromSidecar(unit=unit) for unit in units] or [message]

    def numbers(self, rank: int) -> list[tuple[int, int]]:
        """Return generation and index of the units that a reader has got."""
        return [(one.unit.generation, one.unit.index) for one in self.received(rank)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    slots, waiting = SlotPool(tmp_path / "slots", 256), dict[str, str]()
    outbox = SharedOutbox(slots, waiting)
    pairs = [packet_socket.pair() for _ in range(2)]
    sockets = [TrainerSocket(theirs) for _, theirs in pairs]
    readers = [
        Reader(rank, UnitOutbox(one, slots, keeps_unsent=True)) for rank, one in enumerate(sockets)
    ]
    for reader in readers:
        reader.start(7 + reader.rank, Place(0, 0))
        outbox.add(reader)
    outbox.begin_pass(1, Place(0, 0))
    yield Group(slots, waiting, outbox, readers, sockets, [ours for ours, _ in pairs])
    for (ours, _), theirs in zip(pairs, sockets, strict=True):
        ours.close()
        theirs.close()
    slots.close()


def test_the_last_reader_releases_a_slot(group: Group) -> None:
    group.send(0, 1)
    assert group.numbers(0) == [(7, 0), (7, 1)]
    (first, _) = group.received(1)
    for released, reader in enumerate(group.readers, 1):
        reader.outbox.release([first.unit.slot])
        reader.outbox.release([first.unit.slot])  # for the second time
        assert group.slots.slots == (1 if released == 2 else 2)
    group.readers[0].outbox.release_all()  # its process is gone
    assert group.slots.slots == 1
    group.readers[1].outbox.release_all()
    assert group.slots.slots == 0


def test_a_reader_that_comes_back_gets_what_it_lost_and_the_other_gets_nothing_twice(
    group: Group,
) -> None:
    group.send(0, 1, 2)
    zero, one = group.readers
    one.outbox.release_all()
    one.start(20, Place(0, 1))
    group.outbox.begin_pass(3, Place(0, 1))
    zero.outbox.release_all()
    group.received(0), group.received(1)
    group.send(0, 1, 2, generation=3)  # the units 1, 2 and 3 of the epoch
    assert group.numbers(0) == [(7, 3)]
    assert group.numbers(1) == [(20, 0), (20, 1), (20, 2)]


def test_each_reader_gets_the_end_and_the_next_epoch_in_its_own_numbers(group: Group) -> None:
    group.send(0)
    end = trainer_pb2.EpochEnd(generation=1, units=1)
    group.outbox.send(trainer_pb2.FromSidecar(end=end), NEVER)
    group.send(0, generation=2)
    for rank in range(2):
        unit, ended, ahead = group.received(rank)
        assert (ended.end.generation, ended.end.units) == (7 + rank, 1)
        assert (unit.unit.index, ahead.unit.generation, ahead.unit.index) == (0, 8 + rank, 0)


def test_units_of_a_cancelled_send_reach_the_reader_later(group: Group) -> None:
    cancelled = threading.Event()
    cancelled.set()
    slot = group.slots.allocate(64, 0.0, NEVER)
    group.outbox.send_unit(trainer_pb2.Unit(generation=1, index=0, slot=slot or 0), NEVER)
    with pytest.raises(Cancelled):
        group.outbox.flush(cancelled)
    group.outbox.flush(NEVER)
    assert [group.numbers(rank) for rank in range(2)] == [[(7, 0)], [(8, 0)]]


def test_the_death_of_a_reader_does_not_stop_the_other(group: Group) -> None:
    group.ends[0].close()
    group.send(0, 1)
    assert group.numbers(1) == [(8, 0), (8, 1)]
    assert group.outbox.readers == [group.readers[1]]
    assert group.outbox.running
    group.ends[1].close()
    with pytest.raises(Cancelled):
        group.send(2)
    assert not group.outbox.running, "a reader that comes back needs another pass"


def test_an_end_counts_before_it_is_sent_and_is_kept_if_the_pass_is_cancelled(
    group: Group,
) -> None:
    group.send(0)
    cancelled = threading.Event()
    cancelled.set()
    end = trainer_pb2.FromSidecar(end=trainer_pb2.EpochEnd(generation=1, units=1))
    with pytest.raises(Cancelled):
        group.outbox.send(end, cancelled)
    assert [one.next for one in group.readers] == [Place(1, 0)] * 2
    group.outbox.flush(NEVER)
    for rank in range(2):
        _, ended = group.received(rank)
        assert (ended.end.generation, ended.end.units) == (7 + rank, 1)


def test_an_end_that_was_kept_is_sent_also_if_the_next_pass_fails_at_once(group: Group) -> None:
    cancelled = threading.Event()
    cancelled.set()
    end = trainer_pb2.FromSidecar(end=trainer_pb2.EpochEnd(generation=1))
    with pytest.raises(Cancelled):
        group.outbox.send(end, cancelled)
    group.readers[0].start(20, Place(0, 0))
    group.outbox.begin_pass(3, Place(0, 0))
    group.outbox.send(failure_message(UnavailableError("no worker"), 3), NEVER)
    assert [one.HasField("end") for one in group.received(1)] == [True]


def test_an_error_of_one_reader_leaves_the_others_their_unit(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(unit: trainer_pb2.Unit, _cancelled: threading.Event) -> None:
        group.slots.release(unit.slot)
        raise ConfigError("too long")

    monkeypatch.setattr(group.readers[0].outbox, "send_unit", refuse)
    with pytest.raises(ConfigError, match="too long"):
        group.send(0)
    group.outbox.flush(NEVER)
    assert group.numbers(1) == [(8, 0)]
    group.readers[1].outbox.release_all()
    assert group.slots.slots == 0


def test_an_epoch_that_was_skipped_has_its_place(group: Group) -> None:
    for one in group.readers:
        one.start(7 + one.rank, Place(2, 0))
    group.send(0, generation=3)
    assert [group.numbers(rank) for rank in range(2)] == [[(7, 0)], [(8, 0)]]


def test_a_unit_counts_once_all_readers_have_acknowledged_it(group: Group) -> None:
    group.send(0, 1, 2)
    for rank, units in ((0, 3), (1, 1)):
        progress = trainer_pb2.Progress(generation=7 + rank, units=units)
        group.readers[rank].outbox.record_progress(progress)
    assert group.outbox.consumed == (2, 1, 0)
    assert not group.outbox.has_all_of(0)


def test_what_was_consumed_counts_while_no_reader_is_connected(group: Group) -> None:
    group.send(0, 1)
    for rank, reader in enumerate(group.readers):
        reader.outbox.record_progress(trainer_pb2.Progress(generation=7 + rank, units=2))
    for reader in group.readers:
        group.outbox.remove(reader)
    assert group.outbox.consumed == (4, 2, 0)
    again = Reader(0, UnitOutbox(group.sockets[0], group.slots, keeps_unsent=True))
    group.outbox.add(again)
    assert again.consumed == group.outbox.consumed == (4, 2, 0)


def test_a_reader_that_holds_all_slots_is_named(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    group.send(0, 1, 2, 3)
    zero, one = group.readers
    zero.outbox.release_all()
    zero.outbox.record_progress(trainer_pb2.Progress(generation=7, waiting=True))
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(module, "time", type("Clock", (), {"monotonic": lambda: next(clock)}))
    monkeypatch.setattr(group.slots, "allocate", lambda *_: time.sleep(0))
    holder = "rank 1, which holds 4 of the batches that it shares with rank 0"
    reports: list[str] = []
    monkeypatch.setattr(group.outbox, "report_wait", lambda what, _: reports.append(what))
    with pytest.raises(UnavailableError, match=f"for 20 s: waiting for {holder}"):
        group.outbox.allocate(64, NEVER, 20.0)
    assert set(reports) == {holder}
    assert not group.waiting
    assert one.outbox.held == 4
