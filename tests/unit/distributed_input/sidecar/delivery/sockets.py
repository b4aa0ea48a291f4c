"""Connected sockets for tests of the delivery stage."""

from __future__ import annotations

import select
import socket

from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import TO_TRAINER_BYTES
from distributed_input.link.trainer import packet_socket
from distributed_input.link.trainer.sidecar_end import TrainerSocket
from distributed_input.sidecar import server


class Trainer:
    """The trainer's end of a connection, and the sidecar's `socket`."""

    def __init__(self) -> None:
        self._socket, theirs = packet_socket.pair()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, server._SEND_BUFFER_BYTES)
        theirs.settimeout(0.05)
        self._socket.settimeout(10.0)
        self.socket = TrainerSocket(theirs)

    def receive(self) -> trainer_pb2.FromSidecar | None:
        """Return the next message, or None at the end of the connection."""
        packet = self._socket.recv(TO_TRAINER_BYTES)
        return trainer_pb2.FromSidecar.FromString(packet) if packet else None

    def has_message(self) -> bool:
        """Return whether a message has arrived."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def send(self, packet: bytes) -> None:
        """Send a packet to the sidecar."""
        self._socket.send(packet)

    def close(self) -> None:
        """Close both ends."""
        self._socket.close()
        self.socket.close()
