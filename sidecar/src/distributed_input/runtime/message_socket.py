"""Messages over a socket: each is its length in 8 bytes, then its bytes.

The sender's pieces go to the kernel as they are, and the receiver's kernel writes into the memory
that the reader keeps. gRPC copies a message several times on each side.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Sequence

import numpy as np

_LENGTH = struct.Struct("<Q")
_MAX_BYTES = 1 << 31  # as protobuf
_MAX_PIECES = 512  # in one call; Linux allows 1024
# Detects a peer that the network does not reach any more, after about 8 s.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 4, 2, 2
_UNACKNOWLEDGED_MILLISECONDS = 8000


class MessageSocket:
    """A connected socket that carries messages. One thread may send while another one receives.

    Args:
        connected: the socket. This object closes it.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(None)
        _set_options(connected)
        self._socket = connected

    def send(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Send the bytes of all pieces as one message. Return its size.

        Raises:
            OSError: the connection ended.
        """
        views = [memoryview(piece) for piece in pieces]
        size = sum(view.nbytes for view in views)
        views.insert(0, memoryview(_LENGTH.pack(size)))
        at = 0
        while at < len(views):
            sent = self._socket.sendmsg(views[at : at + _MAX_PIECES])
            while at < len(views) and sent >= views[at].nbytes:
                sent -= views[at].nbytes
                at += 1
            if sent:
                views[at] = views[at][sent:]
        return size

    def receive(self) -> memoryview | None:
        """Wait for the next message. None if the peer ended the connection between two messages.

        Raises:
            OSError: the connection broke.
            ValueError: the peer sends something else than messages.
        """
        header = bytearray(_LENGTH.size)
        received = self._fill(memoryview(header))
        if not received:
            return None
        if received < len(header):
            raise ConnectionResetError("the connection ended within a message")
        (size,) = _LENGTH.unpack(header)
        if size > _MAX_BYTES:
            raise ValueError(f"a message of {size} bytes was announced, at most {_MAX_BYTES}")
        data = memoryview(np.empty(size, np.uint8))  # not filled with zeros first
        if self._fill(data) < size:
            raise ConnectionResetError("the connection ended within a message")
        return data

    def _fill(self, view: memoryview) -> int:
        """Receive until the view is full or the connection ends. Return the number of bytes."""
        filled = 0
        while filled < len(view):
            count = self._socket.recv_into(view[filled:], 0, socket.MSG_WAITALL)
            if not count:
                break
            filled += count
        return filled

    def shut_down(self) -> None:
        """End the connection in both directions. A thread that sends or receives returns."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, and release the socket. No thread may use it any more."""
        self.shut_down()
        self._socket.close()


def _set_options(connected: socket.socket) -> None:
    if connected.family == socket.AF_UNIX:
        return
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        "TCP_KEEPIDLE": _IDLE_SECONDS,
        "TCP_KEEPINTVL": _PROBE_SECONDS,
        "TCP_KEEPCNT": _PROBES,
        "TCP_USER_TIMEOUT": _UNACKNOWLEDGED_MILLISECONDS,
    }
    for name, value in values.items():
        option = getattr(socket, name, None)  # not on all systems
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
