"""Unix sockets that carry packets, between a trainer and its sidecar.

Linux has them: SOCK_SEQPACKET. macOS has no such Unix sockets. There, a stream carries the packets,
each with its length before it. The choice depends on the system alone, and both ends are on one
host. So all releases that run on a system understand each other.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import struct
import threading
import time
from typing import Any

_LENGTH = struct.Struct("<I")
_REST_SECONDS = 30.0  # for the rest of a packet, of which a part was sent
_SLICE_SECONDS = 0.2  # a wait notices within this time that another thread has closed the socket
_BUSY_SECONDS = 0.2  # for another thread's packet, if the socket blocks


def new() -> socket.socket:
    """Return a new Unix socket that carries packets."""
    if hasattr(socket, "SOCK_SEQPACKET"):
        return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return StreamOfPackets(socket.AF_UNIX, socket.SOCK_STREAM)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets."""
    if hasattr(socket, "SOCK_SEQPACKET"):
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return StreamOfPackets(fileno=first.detach()), StreamOfPackets(fileno=second.detach())


def receive(connected: socket.socket, size: int) -> bytes:
    """Return the next packet as `recv`, also if the peer has closed its end with packets unread.

    ECONNRESET is raised once then. Packets that the peer sent before are still there.
    """
    try:
        return connected.recv(size)
    except ConnectionResetError:
        return connected.recv(size)


class StreamOfPackets(socket.socket):
    """A stream socket whose `send` and `recv` carry whole packets, as SOCK_SEQPACKET does.

    Several threads may send. One thread at a time may receive. A timeout of the socket does not
    limit the rest of a packet of which a part was sent: a stream cannot take it back.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sending = threading.Lock()
        self._received = bytearray()  # of the current packet, with its length
        self._too_long = 0  # bytes of an earlier packet that `recv` cut off

    def accept(self) -> tuple[socket.socket, Any]:
        """Wait for a connection. Return its socket and address."""
        connected, address = super().accept()
        return StreamOfPackets(fileno=connected.detach()), address

    def send(self, packet: Any, flags: int = 0) -> int:
        """Send a packet completely, or raise BlockingIOError or TimeoutError and send nothing.

        Raises:
            OSError: the peer is gone, or it did not read the rest of the packet in time. The
                connection then ends.
        """
        data = memoryview(_LENGTH.pack(len(packet)) + packet)
        # A finalizer may release a slot within `send`. So a socket that must not block never waits
        # for this lock.
        if not self._sending.acquire(timeout=_BUSY_SECONDS if self.gettimeout() != 0 else 0):
            raise BlockingIOError(errno.EAGAIN, "another packet is being sent")
        try:
            sent = super().send(data, flags)
            if sent < len(data):
                self._send_rest(data[sent:])
        finally:
            self._sending.release()
        return len(packet)

    def _send_rest(self, rest: memoryview) -> None:
        deadline = time.monotonic() + _REST_SECONDS
        while rest:
            if time.monotonic() > deadline:
                with contextlib.suppress(OSError):
                    self.shutdown(socket.SHUT_RDWR)
                raise OSError(errno.EPIPE, "the peer has read only a part of a packet")
            waiting = select.poll()
            try:
                waiting.register(self, select.POLLOUT)
            except ValueError as error:
                raise OSError(errno.EBADF, "another thread has closed the socket") from error
            waiting.poll(_SLICE_SECONDS * 1000)
            with contextlib.suppress(BlockingIOError, TimeoutError):
                rest = rest[super().send(rest) :]

    def recv(self, size: int, _flags: int = 0) -> bytes:
        """Return the next packet, cut off after `size` bytes; b"" at the end of the connection.

        Raises:
            BlockingIOError: no whole packet has arrived, and the socket does not block.
        """
        while self._too_long:
            skipped = len(super().recv(min(self._too_long, 1 << 16)))
            if not skipped:
                return b""
            self._too_long -= skipped
        if not self._receive_until(_LENGTH.size):
            return b""
        (length,) = _LENGTH.unpack_from(self._received)
        if not self._receive_until(_LENGTH.size + min(length, size)):
            return b""
        packet = bytes(memoryview(self._received)[_LENGTH.size :])
        self._received.clear()
        self._too_long = length - len(packet)
        return packet

    def _receive_until(self, size: int) -> bool:
        """Receive until there are `size` bytes. Return False if the connection ends before.

        It never reads more, because `poll` does not report what is already in this process.
        """
        while (missing := size - len(self._received)) > 0:
            part = super().recv(missing)
            if not part:
                return False
            self._received += part
        return True
