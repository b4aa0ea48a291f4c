"""Unix sockets of packets in memory, as the replacement of the modules `socket` and `select`.

They behave as Linux does: a send waits while the receiver's queue is full, packets sent before the
end can still be read, and a peer that closes with unread packets causes one ECONNRESET.
"""

from __future__ import annotations

import errno
import os
import select as real_select
import socket as real_socket
import struct
from collections import deque
from typing import Any

from testing.delivery.virtual.primitives import current, wait_for, wake_one
from testing.delivery.virtual.scheduler import SimProcess, Task

_PACKET_OVERHEAD = 512
Waiters = deque[tuple[Task, int]]


class SocketTable:
    """The listening sockets of a simulation, by path, and the size of socket buffers."""

    def __init__(self, buffer: int) -> None:
        self.buffer = buffer
        self.listening: dict[str, SimSocket] = {}


class _Sockets:
    table: SocketTable


sockets = _Sockets()


class SimSocket:
    """socket.socket(AF_UNIX, SOCK_SEQPACKET)."""

    def __init__(self, family: int = real_socket.AF_UNIX, kind: int = 0) -> None:
        task = current.scheduler.current
        assert task is not None
        self._start(task.process)

    def _start(self, process: SimProcess) -> None:
        self._process = process
        self._peer: SimSocket | None = None
        self._queue: deque[bytes] = deque()  # received
        self._queued = 0
        self._blocking = True
        self._send_timeout: float | None = None
        self._closed = False  # by `close`
        self._released = False  # the connection is over at this end
        self._reading = 0
        self._eof = False  # no further packets will come
        self._hung_up = False  # the peer is gone
        self._reset = False
        self._writable = True
        self._readers: Waiters = deque()
        self._writers: Waiters = deque()  # wait for room in the peer's queue
        self._pollers: Waiters = deque()
        self._path = ""
        self._backlog: deque[SimSocket] = deque()
        process.endpoints[self] = None

    # Connecting.

    def bind(self, path: str) -> None:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._path = path

    def listen(self, backlog: int) -> None:
        sockets.table.listening[self._path] = self

    def accept(self) -> tuple[SimSocket, str]:
        while not self._backlog:
            if self._closed:
                raise OSError(errno.EBADF, "closed")
            wait_for(self._readers, None, "accept")
        return self._backlog.popleft(), ""

    def connect(self, path: str) -> None:
        current.scheduler.preempt()
        if not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        server = sockets.table.listening.get(path)
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        other = SimSocket.__new__(SimSocket)
        other._start(server._process)
        self._peer, other._peer = other, self
        server._backlog.append(other)
        wake_one(server._readers)

    def setblocking(self, blocking: bool) -> None:
        self._blocking = blocking

    def settimeout(self, seconds: float | None) -> None:
        pass  # only for connect, which never waits

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if option == real_socket.SO_SNDTIMEO:
            seconds, micros = struct.unpack("ll", value)
            self._send_timeout = seconds + micros / 1e6

    # Packets.

    def send(self, packet: bytes) -> int:
        if self._blocking:
            current.scheduler.preempt()
        deadline = None
        while True:
            peer = self._peer
            if not self._process.alive or self._closed or peer is None:
                raise OSError(errno.EBADF, "Bad file descriptor")
            if not self._writable:
                raise BrokenPipeError(errno.EPIPE, "Broken pipe")
            if peer._queued < sockets.table.buffer:  # Linux ignores the packet's own size
                break
            if not self._blocking:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            timeout = self._send_timeout
            if deadline is None and timeout is not None:
                deadline = current.scheduler.now + timeout
            left = None if deadline is None else deadline - current.scheduler.now
            if left is not None and left <= 0:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            wait_for(self._writers, left, "socket.send")
        peer._queue.append(bytes(packet))
        peer._queued += len(packet) + _PACKET_OVERHEAD
        peer._wake_readers()
        return len(packet)

    def recv(self, size: int) -> bytes:
        self._reading += 1
        try:
            while True:
                if self._closed and not self._reading:
                    raise OSError(errno.EBADF, "Bad file descriptor")
                if self._reset:
                    self._reset = False
                    raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
                if self._queue:
                    packet = self._queue.popleft()
                    self._queued -= len(packet) + _PACKET_OVERHEAD
                    if self._peer is not None:
                        self._peer._wake_writers()
                    return packet[:size]
                if self._eof:
                    return b""
                if not self._blocking:
                    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
                wait_for(self._readers, None, "socket.recv")
        finally:
            self._reading -= 1
            if self._closed and not self._reading:
                self._release()

    def _wake_readers(self) -> None:
        while wake_one(self._readers):
            pass
        while wake_one(self._pollers):
            pass

    def _wake_writers(self) -> None:
        while wake_one(self._writers):
            pass
        while wake_one(self._pollers):
            pass

    # The end.

    def shutdown(self, how: int) -> None:
        peer = self._peer
        if peer is None or self._closed:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        if how in (real_socket.SHUT_RD, real_socket.SHUT_RDWR):
            self._eof = True
            peer._writable = False
            peer._wake_writers()
        if how in (real_socket.SHUT_WR, real_socket.SHUT_RDWR):
            self._writable = False
            peer._eof = True
            peer._wake_readers()
        self._wake_readers()

    def close(self) -> None:
        """Close the file. A thread that reads it keeps the connection open until it returns."""
        if self._closed:
            return
        self._closed = True
        if sockets.table.listening.get(self._path) is self:
            del sockets.table.listening[self._path]
            self._wake_readers()
        if not self._reading:
            self._release()

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        self._process.endpoints.pop(self, None)
        for waiting in self._backlog:
            waiting.close()
        peer = self._peer
        if peer is not None:
            peer._reset = bool(self._queue)
            peer._eof = peer._hung_up = True
            peer._writable = False
            peer._wake_readers()
            peer._wake_writers()
        self._queue.clear()

    def process_died(self) -> None:
        self._reading = 0
        self.close()
        self._release()

    def process_paused(self) -> None:
        pass

    process_resumed = process_paused

    # Poll.

    def events(self) -> int:
        """Return the events that `poll` reports."""
        found = 0
        if self._queue or self._eof or self._reset:
            found |= real_select.POLLIN
        if self._eof:
            found |= getattr(real_select, "POLLRDHUP", 0)
        if self._hung_up or (self._eof and not self._writable):
            found |= real_select.POLLHUP
        peer = self._peer
        if peer is not None and (not self._writable or peer._queued < sockets.table.buffer):
            found |= real_select.POLLOUT
        return found


class _Poll:
    def __init__(self) -> None:
        self._watched: list[tuple[SimSocket, int]] = []

    def register(self, watched: SimSocket, events: int) -> None:
        self._watched.append((watched, events | real_select.POLLHUP))

    def poll(self, milliseconds: float) -> list[tuple[SimSocket, int]]:
        scheduler = current.scheduler
        scheduler.preempt()
        deadline = scheduler.now + milliseconds / 1000
        while True:
            ready = [(s, e) for s, wanted in self._watched if (e := s.events() & wanted)]
            left = deadline - scheduler.now
            if ready or left <= 0:
                return ready
            wait_for(self._watched[0][0]._pollers, left, "poll")


class SimSelect:
    """The module `select`."""

    POLLIN, POLLOUT, POLLHUP = real_select.POLLIN, real_select.POLLOUT, real_select.POLLHUP
    POLLRDHUP = getattr(real_select, "POLLRDHUP", 0)
    poll = _Poll


class SimSocketModule:
    """The module `socket`."""

    socket = SimSocket
    AF_UNIX, SOCK_SEQPACKET = real_socket.AF_UNIX, real_socket.SOCK_SEQPACKET
    SOL_SOCKET, SO_SNDBUF = real_socket.SOL_SOCKET, real_socket.SO_SNDBUF
    SO_SNDTIMEO = real_socket.SO_SNDTIMEO
    SO_RCVBUF = real_socket.SO_RCVBUF
    SHUT_RD, SHUT_WR, SHUT_RDWR = real_socket.SHUT_RD, real_socket.SHUT_WR, real_socket.SHUT_RDWR

    @staticmethod
    def gethostname() -> str:
        task = current.scheduler.current
        return task.process.name.replace(".", "-") if task is not None else "simulation"
