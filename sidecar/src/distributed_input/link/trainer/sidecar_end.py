"""The socket between the sidecar and one trainer, which carries packets of protobuf messages."""

from __future__ import annotations

import errno
import socket
import threading

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import TO_SIDECAR_BYTES, TO_TRAINER_BYTES
from distributed_input.link.errors import Cancelled
from distributed_input.link.trainer import packet_socket


class TrainerSocket:
    """One connected socket of packets with a send timeout. Any thread may send.

    Attributes:
        closed: set once no messages may be sent any more.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.closed = threading.Event()
        self._socket = sock

    def receive(self) -> bytes:
        """Wait for the next packet. Return b"" when the trainer has closed the connection.

        Raises:
            OSError: the trainer is gone, or the packet is too long.
        """
        packet = packet_socket.receive(self._socket, TO_SIDECAR_BYTES + 1)
        if len(packet) > TO_SIDECAR_BYTES:
            raise OSError(errno.EMSGSIZE, "the trainer's message is too long")
        return packet

    def send(self, message: trainer_pb2.FromSidecar, cancelled: threading.Event) -> None:
        """Send one message. Wait while the trainer has not read earlier ones.

        Raises:
            Cancelled: `cancelled` or `closed` is set, or the trainer is gone.
            ConfigError: the message is too long.
        """
        packet = message.SerializeToString()
        while not (cancelled.is_set() or self.closed.is_set()):
            if len(packet) > TO_TRAINER_BYTES:
                raise ConfigError(
                    f"a message of {len(packet):,} bytes to the trainer is too long (at most "
                    f"{TO_TRAINER_BYTES:,}): the dataset's elements have too many components. "
                    "Stack components of the same type, or lower spec.partitions"
                )
            try:
                if self._try_send(packet):
                    return
            except OSError as error:
                raise Cancelled from error
        raise Cancelled

    def send_last(self, message: trainer_pb2.FromSidecar) -> None:
        """Send one more message and then the end of the connection, from a thread of its own.

        The trainer may take long to read earlier messages, and the caller must not wait for it.
        """
        thread = threading.Thread(
            target=self._send_last, args=(message,), name="send-last", daemon=True
        )
        thread.start()

    def _send_last(self, message: trainer_pb2.FromSidecar) -> None:
        packet = message.SerializeToString()
        try:
            while not self._try_send(packet):
                pass
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the trainer is gone

    def _try_send(self, packet: bytes) -> bool:
        """Send a packet. Return False if there was no room within the socket's send timeout."""
        try:
            self._socket.send(packet)
        except (BlockingIOError, TimeoutError):
            return False
        return True

    def close(self) -> None:
        """Close the socket."""
        self.closed.set()
        self._socket.close()
