"""Messages over a socket: each is its length in 8 bytes, then its bytes.

The sender's pieces go to the kernel as they are, and the receiver's kernel writes into the memory
that the reader keeps. gRPC copies a message several times on each side.

If both ends have a region of shared memory, a large message may be there. Then the highest bit of
its length is set, and its offset follows instead of its bytes.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from collections.abc import Sequence

import numpy as np

from distributed_input.link.blocks.shared_region import RegionReader, RegionWriter
from distributed_input.link.tls.secure_socket import joined

ROWS_SUFFIX = ".rows"
"""Ends the path of the socket for rows, beside that of a worker's gRPC server."""
_LENGTH = struct.Struct("<Q")
_IN_REGION = 1 << 63  # in a length
_MIN_REGION_BYTES = 1 << 15  # smaller messages would waste the chunks of a region
_MAX_BYTES = 1 << 31  # as protobuf
_FIRST_BYTES = 64 << 20  # more than the blocks of one message usually have
_MAX_PIECES = 512  # in one call; Linux allows 1024
# Detects a peer that the network does not reach any more, after about 8 s.
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 4, 2, 2
_UNACKNOWLEDGED_MILLISECONDS = 8000


class MessageSocket:
    """A connected socket that carries messages. One thread may send while another one receives.

    Args:
        connected: the socket, which may be encrypted. This object closes it.
        region: memory for the messages that this end sends or receives; None: the socket carries
            them.

    Attributes:
        encrypted_bytes: size of all messages that this end has encrypted.
    """

    def __init__(
        self, connected: socket.socket, region: RegionWriter | RegionReader | None = None
    ) -> None:
        connected.settimeout(None)
        _set_options(connected)
        self.encrypted_bytes = 0
        self._socket = connected
        self._is_encrypted = isinstance(connected, ssl.SSLSocket)
        self._receive_flags = 0 if self._is_encrypted else socket.MSG_WAITALL
        self._writer = region if isinstance(region, RegionWriter) else None
        self._reader = region if isinstance(region, RegionReader) else None

    def send(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Send the bytes of all pieces as one message. Return its size.

        Raises:
            OSError: the connection ended.
        """
        views = [memoryview(piece) for piece in pieces]
        size = sum(view.nbytes for view in views)
        place = None
        if self._writer is not None and size >= _MIN_REGION_BYTES:
            place = self._writer.place(views, size)
        if place is None:
            views.insert(0, memoryview(_LENGTH.pack(size)))
        else:
            views = [memoryview(_LENGTH.pack(size | _IN_REGION) + _LENGTH.pack(place))]
        if self._is_encrypted:
            for view in joined(views):
                self._socket.sendall(view)
            self.encrypted_bytes += size
            return size
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
        size = self._receive_number()
        if size is None:
            return None
        if self._reader is not None and size & _IN_REGION:
            place = self._receive_number()
            if place is None:
                raise ConnectionResetError("the connection ended within a message")
            return self._reader.view(place, size ^ _IN_REGION)
        if size > _MAX_BYTES:
            raise ValueError(f"a message of {size} bytes was announced, at most {_MAX_BYTES}")
        return self._receive_bytes(size)

    def _receive_bytes(self, size: int) -> memoryview:
        """Receive a message. A length may be wrong, so memory grows with what has arrived."""
        data = memoryview(np.empty(min(size, _FIRST_BYTES), np.uint8))  # not filled with zeros
        filled = 0
        while True:
            filled += self._fill(data[filled:])
            if filled < len(data):
                raise ConnectionResetError("the connection ended within a message")
            if filled == size:
                return data
            larger = memoryview(np.empty(min(size, 2 * filled), np.uint8))
            larger[:filled] = data
            data = larger

    def _receive_number(self) -> int | None:
        """Receive 8 bytes. None if the connection ended before them."""
        number = bytearray(_LENGTH.size)
        received = self._fill(memoryview(number))
        if not received:
            return None
        if received < len(number):
            raise ConnectionResetError("the connection ended within a message")
        return int(_LENGTH.unpack(number)[0])

    def _fill(self, view: memoryview) -> int:
        """Receive until the view is full or the connection ends. Return the number of bytes."""
        filled = 0
        while filled < len(view):
            count = self._socket.recv_into(view[filled:], 0, self._receive_flags)
            if not count:
                break
            filled += count
        return filled

    def shut_down(self) -> None:
        """End the connection in both directions. A thread that sends or receives returns."""
        with contextlib.suppress(OSError):
            # Not SSLSocket.shutdown: a thread that sends would continue without encryption.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """End the connection, and release the socket. No thread may use it any more."""
        self.shut_down()
        self._socket.close()
        self._reader = self._writer = None  # messages that are in use keep the memory


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
