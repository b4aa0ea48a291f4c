"""Released slots reach the sidecar, also when it is slow."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, ProtocolError
from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import TO_SIDECAR_BYTES, TO_TRAINER_BYTES
from distributed_input.client.channel import Channel
from distributed_input.sidecar import server
from tests.unit.distributed_input.positions import largest_position

SECONDS = 10.0
SLOTS = range(1000)
"""One packet for each slot is several times the size of the socket's buffer."""


def connected(folder: Path) -> tuple[Channel, socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(folder / SOCKET_NAME))
        listening.listen()
        channel = Channel(folder, SECONDS)
        theirs, _ = listening.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, server._SEND_BUFFER_BYTES)
        theirs.settimeout(SECONDS)
    return channel, theirs


def test_slots_released_after_shutdown_reach_a_slow_sidecar(
    tmp_path: Path,
) -> None:
    channel, theirs = connected(tmp_path)
    channel.shutdown()
    released: list[int] = []

    def read() -> None:
        while packet := theirs.recv(TO_SIDECAR_BYTES):
            released.extend(trainer_pb2.FromTrainer.FromString(packet).release.slots)

    reading = threading.Timer(0.2, read)  # the socket is full by then
    reading.start()
    for slot in SLOTS:
        channel.release(slot)
    del channel
    reading.join(SECONDS)
    assert released == list(SLOTS)
    theirs.close()


def test_a_closed_job_is_reported_behind_the_slots_of_unread_batches(tmp_path: Path) -> None:
    channel, theirs = connected(tmp_path)
    theirs.settimeout(SECONDS)
    theirs.send(trainer_pb2.FromSidecar(unit=trainer_pb2.Unit(slot=7)).SerializeToString())
    channel.shutdown()
    channel.drop_unread()
    channel.release_job()
    first, last = (trainer_pb2.FromTrainer.FromString(theirs.recv(1 << 17)) for _ in range(2))
    assert first.release.slots == [7]
    assert last.HasField("close")
    theirs.close()
    channel.release_job()  # a sidecar that is gone has released the job


def test_slots_return_at_once_after_shutdown_even_if_another_thread_still_reads(
    tmp_path: Path,
) -> None:
    channel, theirs = connected(tmp_path)
    theirs.settimeout(SECONDS)
    channel.shutdown()
    assert list(channel.drain()) == []
    channel.release(7)
    assert trainer_pb2.FromTrainer.FromString(theirs.recv(1 << 17)).release.slots == [7]
    theirs.close()


def test_an_idle_channel_returns_slots_at_once(tmp_path: Path) -> None:
    channel, theirs = connected(tmp_path)
    channel.mark_idle()
    channel.release(7)
    assert trainer_pb2.FromTrainer.FromString(theirs.recv(TO_SIDECAR_BYTES)).release.slots == [7]
    theirs.close()


def test_the_largest_start_of_an_epoch_reaches_the_sidecar(tmp_path: Path) -> None:
    channel, theirs = connected(tmp_path)
    start = trainer_pb2.StartEpoch(generation=1, epoch=1, position=largest_position())
    channel.send(start=start)
    received = trainer_pb2.FromTrainer.FromString(theirs.recv(TO_SIDECAR_BYTES))
    assert received.start == start
    theirs.close()


def test_too_long_a_message_to_the_sidecar_is_an_error(tmp_path: Path) -> None:
    channel, theirs = connected(tmp_path)
    with pytest.raises(ConfigError, match="too many components"):
        channel.send(open=trainer_pb2.Open(dataset_id="x" * TO_SIDECAR_BYTES))
    theirs.close()


def test_too_long_a_message_from_the_sidecar_is_an_error(tmp_path: Path) -> None:
    """It would be cut off; an older sidecar may send it."""
    channel, theirs = connected(tmp_path)
    longest = trainer_pb2.FromSidecar(waiting={"what": "x" * (TO_TRAINER_BYTES - 8)})
    theirs.send(longest.SerializeToString())
    assert channel.receive(SECONDS) == longest
    theirs.send(bytes(TO_TRAINER_BYTES + 1))
    with pytest.raises(ProtocolError, match="upgrade the sidecar"):
        channel.receive(SECONDS)
    theirs.close()


def test_many_slots_are_released_in_several_packets(tmp_path: Path) -> None:
    channel, theirs = connected(tmp_path)
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
    theirs.close()
