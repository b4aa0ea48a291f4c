"""Released slots reach the sidecar, also when it is slow."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import trainer_pb2
from distributed_input.client.channel import Channel

SECONDS = 10.0
SLOTS = range(1000)
"""One packet for each slot is several times the size of the socket's buffer."""


def connected(folder: Path) -> tuple[Channel, socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(folder / SOCKET_NAME))
        listening.listen()
        channel = Channel(folder, SECONDS)
        theirs, _ = listening.accept()
    return channel, theirs


def test_slots_released_after_shutdown_reach_a_slow_sidecar(
    tmp_path: Path,
) -> None:
    channel, theirs = connected(tmp_path)
    channel.shutdown()
    released: list[int] = []

    def read() -> None:
        while packet := theirs.recv(1 << 17):
            released.extend(trainer_pb2.FromTrainer.FromString(packet).release.slots)

    reading = threading.Timer(0.2, read)  # the socket is full by then
    reading.start()
    for slot in SLOTS:
        channel.release(slot)
    del channel
    reading.join(SECONDS)
    assert released == list(SLOTS)
    theirs.close()


def test_an_idle_channel_returns_slots_at_once(tmp_path: Path) -> None:
    channel, theirs = connected(tmp_path)
    channel.mark_idle()
    channel.release(7)
    theirs.settimeout(SECONDS)
    assert trainer_pb2.FromTrainer.FromString(theirs.recv(1 << 17)).release.slots == [7]
    theirs.close()
