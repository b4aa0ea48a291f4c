"""Released slots reach the sidecar, also when it is slow."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from distributed_input.api.errors import ConfigError, ProtocolError, UnavailableError
from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import TO_SIDECAR_BYTES, TO_TRAINER_BYTES
from distributed_input.link.trainer import packet_socket
from distributed_input.link.trainer import trainer_end as channel_module
from distributed_input.link.trainer.trainer_end import Channel, SidecarDisconnected
from distributed_input.runtime.files import shared_files
from distributed_input.sidecar import server

SECONDS = 10.0
Ends: TypeAlias = tuple[Channel, socket.socket]
SLOTS = range(1000)
"""One packet for each slot is several times the size of the socket's buffer."""


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    with packet_socket.new() as listening:
        listening.bind(str(tmp_path / SOCKET_NAME))
        listening.listen()
        channel = Channel(tmp_path, SECONDS)
        theirs, _ = listening.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, server._SEND_BUFFER_BYTES)
        theirs.settimeout(SECONDS)
    yield channel, theirs
    theirs.close()


def test_slots_released_after_shutdown_reach_a_slow_sidecar(ends: Ends) -> None:
    channel, theirs = ends
    channel.shutdown()
    released: list[int] = []

    def read() -> None:
        while packet := theirs.recv(TO_SIDECAR_BYTES):
            released.extend(trainer_pb2.FromTrainer.FromString(packet).release.slots)

    reading = threading.Timer(0.2, read)  # the socket is full by then
    reading.start()
    for slot in SLOTS:
        channel.release(slot)
    channel._socket.close()
    reading.join(SECONDS)
    assert released == list(SLOTS)


def test_a_closed_job_is_reported_behind_the_slots_of_unread_batches(ends: Ends) -> None:
    channel, theirs = ends
    theirs.send(trainer_pb2.FromSidecar(unit=trainer_pb2.Unit(slot=7)).SerializeToString())
    channel.shutdown()
    channel.drop_unread()
    channel.release_job()
    first, last = (trainer_pb2.FromTrainer.FromString(theirs.recv(1 << 17)) for _ in range(2))
    assert first.release.slots == [7]
    assert last.HasField("close")
    theirs.close()
    channel.release_job()  # a sidecar that is gone has released the job


def test_too_long_a_message_to_the_sidecar_is_an_error(ends: Ends) -> None:
    channel, _ = ends
    with pytest.raises(ConfigError, match="too many components"):
        channel.send(open=trainer_pb2.Open(dataset_id="x" * TO_SIDECAR_BYTES))


def test_many_slots_are_released_in_several_packets(ends: Ends) -> None:
    channel, theirs = ends
    slots = [2**63 + slot for slot in range(30_000)]
    channel._released.extend(slots)
    released: list[int] = []

    def read() -> None:
        while len(released) < len(slots):
            packet = theirs.recv(TO_SIDECAR_BYTES)
            released.extend(trainer_pb2.FromTrainer.FromString(packet).release.slots)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    channel.mark_idle()
    reading.join(SECONDS)
    assert released == slots


def released_slots(theirs: socket.socket) -> list[int]:
    """Return the slots of all packets that have arrived."""
    slots: list[int] = []
    theirs.setblocking(False)
    try:
        while True:
            slots += trainer_pb2.FromTrainer.FromString(theirs.recv(1 << 17)).release.slots
    except BlockingIOError:
        return slots


def test_a_busy_loop_returns_eight_slots_together_or_with_its_next_receive(ends: Ends) -> None:
    channel, theirs = ends
    for slot in range(7):
        channel.release(slot)
    assert released_slots(theirs) == []
    channel.release(7)
    assert released_slots(theirs) == list(range(8))
    channel.release(8)
    assert released_slots(theirs) == []
    assert channel.receive(0) is None
    assert released_slots(theirs) == [8]


def test_a_receive_ends_the_idle_time(ends: Ends) -> None:
    channel, theirs = ends
    channel.mark_idle()
    assert channel.receive(0.01) is None
    channel.release(1)
    assert released_slots(theirs) == []


def test_a_slot_returns_at_once_while_another_thread_waits_for_a_batch(ends: Ends) -> None:
    channel, theirs = ends
    found: list[object] = []
    reading = threading.Thread(target=lambda: found.append(channel.receive(SECONDS)), daemon=True)
    channel.release(6)
    reading.start()
    assert trainer_pb2.FromTrainer.FromString(theirs.recv(1 << 17)).release.slots == [6]
    channel.release(7)  # the thread receives, because it has sent slot 6
    assert trainer_pb2.FromTrainer.FromString(theirs.recv(1 << 17)).release.slots == [7]
    theirs.send(trainer_pb2.FromSidecar(waiting={"what": "rows"}).SerializeToString())
    reading.join(SECONDS)
    assert found == [trainer_pb2.FromSidecar(waiting={"what": "rows"})]
    channel.release(8)
    assert released_slots(theirs) == []


def test_a_fork_does_not_return_the_slots_of_its_parent(ends: Ends) -> None:
    channel, theirs = ends
    channel.mark_idle()
    channel.pid += 1
    channel.release(1)
    assert released_slots(theirs) == []


def test_slots_that_a_full_socket_does_not_take_are_sent_later(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_RELEASE_SECONDS", 0.01)
    channel, theirs = ends
    channel.mark_idle()
    sent = 0
    while channel._idle:  # until the socket is full
        channel.release(sent)
        sent += 1
    found = released_slots(theirs)
    assert len(found) == sent - 1
    assert channel.receive(0) is None
    assert found + released_slots(theirs) == list(range(sent))


def test_the_longest_messages_are_sent_and_received(ends: Ends) -> None:
    channel, theirs = ends

    def text(size: int, message: type[trainer_pb2.FromSidecar | trainer_pb2.FromTrainer]) -> str:
        field = {"waiting": {"what": "x" * size}, "open": {"dataset_id": "x" * size}}
        name = "waiting" if message is trainer_pb2.FromSidecar else "open"
        over = len(message(**{name: field[name]}).SerializeToString()) - size
        return "x" * (size - over)

    what = text(TO_TRAINER_BYTES, trainer_pb2.FromSidecar)
    packet = trainer_pb2.FromSidecar(waiting={"what": what}).SerializeToString()
    assert len(packet) == TO_TRAINER_BYTES
    theirs.send(packet)
    received = channel.receive(SECONDS)
    assert received is not None
    assert received.waiting.what == what
    channel.send(open={"dataset_id": text(TO_SIDECAR_BYTES, trainer_pb2.FromTrainer)})
    assert len(theirs.recv(2 * TO_SIDECAR_BYTES)) == TO_SIDECAR_BYTES
    theirs.send(bytes(TO_TRAINER_BYTES + 1))
    with pytest.raises(ProtocolError, match="upgrade the sidecar"):
        channel.receive(SECONDS)


def test_a_sidecar_that_reads_nothing_counts_as_disconnected(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_SEND_SECONDS", 0.05)
    channel, _ = ends

    def fill() -> None:
        for _ in range(10_000):
            channel.send(open={"dataset_id": "x" * 1000})

    with pytest.raises(SidecarDisconnected, match="it has read nothing"):
        fill()


def test_the_end_of_a_connection_is_noticed(ends: Ends) -> None:
    channel, theirs = ends
    assert not channel.wait_for_hangup(0.01)
    theirs.close()
    assert channel.wait_for_hangup(SECONDS)
    assert list(channel.drain()) == []
    with pytest.raises(SidecarDisconnected, match="closed the connection"):
        channel.receive(SECONDS)


def test_a_written_file_is_as_open_as_the_folder(tmp_path: Path, ends: Ends) -> None:
    tmp_path.chmod(0o777)
    channel, _ = ends
    channel.write_file("dataset", b"graph")
    assert (tmp_path / "dataset").stat().st_mode & 0o777 == shared_files.mode(tmp_path)


def test_messages_of_a_sidecar_that_ended_with_unread_packets_are_read(ends: Ends) -> None:
    channel, theirs = ends
    sent = trainer_pb2.FromSidecar(waiting={"what": "rows"})
    channel.send(open=trainer_pb2.Open())
    theirs.send(sent.SerializeToString())
    theirs.close()  # the next read of the trainer fails once with ECONNRESET
    assert list(channel.drain()) == [sent]


def test_a_folder_without_a_sidecar_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=f"no sidecar answers at {tmp_path}"):
        Channel(tmp_path, SECONDS)


def test_a_packet_that_is_not_a_message_is_an_error_of_the_protocol(ends: Ends) -> None:
    channel, theirs = ends
    with theirs:
        theirs.send(b"\xff" * 20)
        with pytest.raises(ProtocolError, match="something else than a message"):
            channel.receive(SECONDS)


def test_slots_that_were_released_before_a_shutdown_return(ends: Ends) -> None:
    channel, theirs = ends
    channel.release(1)
    channel.shutdown()
    assert released_slots(theirs) == [1]


def test_slots_return_at_once_after_shutdown_even_if_another_thread_still_reads(
    ends: Ends,
) -> None:
    channel, theirs = ends
    channel.shutdown()
    assert list(channel.drain()) == []
    channel.release(7)
    assert released_slots(theirs) == [7]
