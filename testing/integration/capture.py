"""A packet capture of the loopback interface, which needs the rights of root."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from collections.abc import Collection, Iterable

_ALL_PROTOCOLS = 3
_BUFFER_BYTES = 64 << 20
_RCVBUFFORCE, _ATTACH_FILTER = 33, 26
_LOAD_HALF, _LOAD_BYTE, _LOAD_HEADER, _LOAD_HALF_BEHIND = 0x28, 0x30, 0xB1, 0x48
_IF_EQUAL, _RETURN = 0x15, 0x06
"""Instructions of the kernel's packet filter."""


def is_possible() -> bool:
    """Return whether this process may capture packets."""
    try:
        _open(()).close()
    except (PermissionError, AttributeError, OSError):
        return False
    return True


def _open(ports: Collection[int]) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    program = _filter(ports)
    buffer = ctypes.create_string_buffer(program)
    pointer = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    opened.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)
    opened.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, _BUFFER_BYTES)
    opened.bind(("lo", 0))
    return opened


def _filter(ports: Collection[int]) -> bytes:
    """Return a packet filter for IPv4 that keeps only packets of these TCP ports."""
    tests = [(offset, port) for offset in (14, 16) for port in sorted(ports)]
    left = 2 * len(tests)  # instructions before the one that drops the packet
    lines = [
        (_LOAD_HALF, 0, 0, 12),
        (_IF_EQUAL, 0, left + 3, 0x0800),
        (_LOAD_BYTE, 0, 0, 23),
        (_IF_EQUAL, 0, left + 1, socket.IPPROTO_TCP),
        (_LOAD_HEADER, 0, 0, 14),
    ]
    for number, (offset, port) in enumerate(tests):
        lines.append((_LOAD_HALF_BEHIND, 0, 0, offset))
        lines.append((_IF_EQUAL, left - 2 * number - 1, 0, port))
    lines += [(_RETURN, 0, 0, 0), (_RETURN, 0, 0, 1 << 18)]
    return b"".join(struct.pack("@HBBI", *line) for line in lines)


class Capture:
    """Searches the packets of some ports for texts, while the block runs.

    Attributes:
        seen: the texts that occurred in a packet.
        bytes: size of all packets.
    """

    def __init__(self, ports: Collection[int], texts: Iterable[bytes]) -> None:
        self.seen: set[bytes] = set()
        self.bytes = 0
        self._texts = tuple(texts)
        self._socket = _open(ports)
        self._socket.settimeout(0.2)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="capture", daemon=True)

    def _run(self) -> None:
        while True:
            try:
                packet = self._socket.recv(1 << 18)
            except TimeoutError:
                if self._stopping.is_set():
                    return
                continue
            self.bytes += len(packet)
            self.seen.update(text for text in self._texts if text in packet)

    def __enter__(self) -> Capture:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._socket.close()
