"""The trainer's end of the socket to one sidecar process, with that sidecar's shared memory."""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from distributed_input.api.errors import ConfigError, ProtocolError, UnavailableError
from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.protocol import TO_SIDECAR_BYTES, TO_TRAINER_BYTES
from distributed_input.link.trainer import packet_socket
from distributed_input.link.trainer.slots import Batch, Slots
from distributed_input.runtime.files import shared_files

# Linux reports that the peer closed as POLLRDHUP. Other systems report POLLHUP only.
_HANGUP = select.POLLHUP | getattr(select, "POLLRDHUP", 0)
_RELEASED_SLOTS = 8  # released slots that are sent at once, at the latest
_PACKET_SLOTS = 4096  # most released slots in one packet
_SEND_SECONDS = 30.0  # timeout of a send, for a sidecar without CPU time
_RELEASE_SECONDS = 1.0  # timeout of sending released slots, which the sidecar can do without


class SidecarDisconnected(Exception):
    """The sidecar closed the socket: it crashed, or it is restarting."""


class Channel:
    """A connected socket and, after `map_slots`, the sidecar's slots.

    `receive` belongs to one thread at a time. `release` and `send` are thread-safe.

    Attributes:
        pid: the process that connected.
    """

    def __init__(self, folder: Path, timeout: float) -> None:
        """Connect to the sidecar.

        Raises:
            UnavailableError: no sidecar accepts connections.
        """
        path = folder / SOCKET_NAME
        self._folder = folder
        self.pid = os.getpid()
        self._released: deque[int] = deque()  # slots to report to the sidecar
        self._receiving = False
        self._idle = False  # no `receive` is expected soon
        self._shut_down = False
        self._slots: Slots | None = None
        self._socket = packet_socket.new()
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise UnavailableError(
                f"no sidecar answers at {path} ({error.strerror or error})"
            ) from error
        self._socket.setblocking(False)

    def map_slots(self, name: str, size: int) -> None:
        """Map the slots file `name` of `size` bytes."""
        self._slots = Slots(self._folder / name, size)

    def batch(self, unit: trainer_pb2.Unit) -> Batch:
        """Return the unit as views of its slot, which they release when they are freed."""
        assert self._slots is not None
        return self._slots.batch(unit, self.release)

    def write_file(self, name: str, data: bytes) -> None:
        """Write a file into the folder shared with the sidecar."""
        fd = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, shared_files.mode(self._folder))  # override the umask
            file.write(data)

    # Messages.

    def send(self, **message: Any) -> None:
        """Send one `FromTrainer` message, given as its field.

        Raises:
            SidecarDisconnected: the sidecar closed the socket, or did not read in time.
        """
        packet = trainer_pb2.FromTrainer(**message).SerializeToString()
        if len(packet) > TO_SIDECAR_BYTES:
            raise ConfigError(
                f"a message of {len(packet):,} bytes to the sidecar is too long: the dataset's "
                "element_spec has too many components"
            )
        if not self._send_within(_SEND_SECONDS, packet):
            raise SidecarDisconnected(f"it has read nothing for {_SEND_SECONDS:.0f} s")

    def _send_within(self, seconds: float, packet: bytes) -> bool:
        """Send a packet; return False if the socket's buffer stays full for `seconds`.

        Raises:
            SidecarDisconnected: the sidecar closed the socket.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._socket.send(packet)
                return True
            except BlockingIOError:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._poll(select.POLLOUT, left)
            except OSError as error:
                raise SidecarDisconnected(str(error)) from error

    def receive(self, seconds: float) -> trainer_pb2.FromSidecar | None:
        """Return the next message, or None if none arrives within `seconds`.

        Raises:
            SidecarDisconnected: the sidecar closed the socket.
            ProtocolError: the message is too long, or it is not a message.
        """
        # Set before the released slots are read: a slot released in between is sent at once.
        self._receiving = True
        self._idle = self._shut_down
        self._send_released()
        try:
            if seconds and not self._poll(select.POLLIN, seconds):
                return None
            packet = packet_socket.receive(self._socket, TO_TRAINER_BYTES + 1)
        except BlockingIOError:
            return None
        except OSError as error:
            raise SidecarDisconnected(str(error)) from error
        finally:
            self._receiving = False
        if not packet:
            raise SidecarDisconnected("it closed the connection")
        if len(packet) > TO_TRAINER_BYTES:
            raise ProtocolError(
                f"the sidecar sent a message of more than {TO_TRAINER_BYTES:,} bytes: upgrade the "
                "sidecar's image, or lower spec.partitions"
            )
        try:
            return trainer_pb2.FromSidecar.FromString(packet)
        except DecodeError as error:
            raise ProtocolError(
                f"the sidecar sent something else than a message ({error}): use the same release "
                "of distributed-input in the trainer and the sidecar's image"
            ) from error

    def drain(self) -> Iterator[trainer_pb2.FromSidecar]:
        """Yield the messages that arrived before the connection ended."""
        try:
            while (message := self.receive(0)) is not None:
                yield message
        except SidecarDisconnected:
            pass

    def wait_for_hangup(self, seconds: float) -> bool:
        """Wait until either side stops the connection; return False after `seconds`."""
        return self._poll(_HANGUP, seconds)

    def _poll(self, events: int, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._socket, events)
        return bool(waiting.poll(seconds * 1000))

    # Slots.

    def release(self, slot: int) -> None:
        """Return a slot to the sidecar; callable from any thread at any time, without a lock.

        The slot is sent at once if another thread waits in `receive`, because the next batch may
        need the room, or if no `receive` is expected soon. Otherwise it is sent with the next
        `receive`, or when several slots are released.
        """
        if os.getpid() != self.pid:
            return  # a fork of the trainer: the parent still owns the slot
        self._released.append(slot)
        if self._receiving or self._idle or len(self._released) >= _RELEASED_SLOTS:
            self._send_released()

    def mark_idle(self) -> None:
        """Send released slots at once until the next `receive`."""
        self._idle = True
        self._send_released()

    def _send_released(self) -> None:
        while slots := self._take_released():
            message = trainer_pb2.FromTrainer(release=trainer_pb2.Release(slots=slots))
            # If no later `receive` sends them again, wait for a sidecar that is behind.
            seconds = _RELEASE_SECONDS if self._idle else 0.0
            try:
                if not self._send_within(seconds, message.SerializeToString()):
                    self._released.extend(slots)  # for the next `receive`, or for more slots
                    self._idle = False  # wait for a slow sidecar once only
                    return
            except SidecarDisconnected:
                pass  # its slots are gone too

    def _take_released(self) -> list[int]:
        """Return the slots of the next packet."""
        slots: list[int] = []
        while self._released and len(slots) < _PACKET_SLOTS:
            try:
                slots.append(self._released.popleft())
            except IndexError:  # another thread took it
                break
        return slots

    def release_job(self) -> None:
        """Let the sidecar release the job and its slots, except the slots of batches in use."""
        message = trainer_pb2.FromTrainer(close=trainer_pb2.Close())
        try:
            self._send_within(_RELEASE_SECONDS, message.SerializeToString())
        except SidecarDisconnected:
            pass  # it has released the job

    def shutdown(self) -> None:
        """Stop reading. Batches in use stay valid, and their slots are still returned.

        A thread that waits in `receive` wakes up. It gets the messages that had arrived, and then
        `SidecarDisconnected`.
        """
        self._shut_down = True
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError:
            pass
        self.mark_idle()

    def drop_unread(self) -> None:
        """Return the slots of batches that arrived and were not read; call it after `shutdown`."""
        for message in self.drain():
            units = [message.unit] if message.HasField("unit") else message.units.units
            self._released.extend(unit.slot for unit in units)
        self.mark_idle()

    def disown(self) -> None:
        """In a fork of the trainer: close the fork's copy of the socket.

        The sidecar must see the end of the parent while the fork still runs.
        """
        self._released.clear()
        self._socket.close()

    def __del__(self) -> None:
        # Each slot refers to this channel, so all slots are released here.
        self._socket.close()
