"""The trainer's end of the socket and the shared memory of one sidecar's life.

A batch is read where the sidecar wrote it. Its slot belongs to a `_Slot`, which every array made
of it keeps alive; when the last of them is gone (TensorFlow drops its reference to the memory
when the tensor dies) the slot goes back. The owner is an object with `__array_interface__`
rather than an ndarray subclass: `np.asarray` collapses views of a subclass, and the slot would
be handed back while tensors still read it.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.api.files import SOCKET_NAME
from distributed_input.api.proto import trainer_pb2
from distributed_input.runtime import shared_files

_PACKET_BYTES = 1 << 18
# Linux tells of the other side's end by POLLRDHUP, other systems by POLLHUP alone.
_HANGUP = select.POLLHUP | getattr(select, "POLLRDHUP", 0)
_RELEASED_SLOTS = 8  # told at the latest
_SEND_SECONDS = 30.0  # for a sidecar that is starved of CPU
_RELEASE_SECONDS = 1.0  # the same, for what it can do without


class SidecarGone(Exception):
    """The sidecar closed the socket: it died, or is being restarted."""


class _Slot:
    """Owns a slot of the ring: hands it back when nothing refers to it."""

    __slots__ = ("__array_interface__", "_channel", "_slot")

    def __init__(self, channel: Channel, slot: int, start: int, size: int) -> None:
        self._channel = channel
        self._slot = slot
        self.__array_interface__ = {
            "data": (channel.address + start, True),  # read-only
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._channel.release(self._slot)


class Channel:
    """A connected socket and, after `map_ring`, the ring."""

    def __init__(self, folder: Path, timeout: float) -> None:
        path = folder / SOCKET_NAME
        self._folder = folder
        self._pid = os.getpid()
        self._released: deque[int] = deque()  # slots that the sidecar does not know of yet
        self._receiving = False
        self._idle = False  # nobody is to wait soon
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise UnavailableError(
                f"no sidecar answers at {path} ({error.strerror or error})"
            ) from error
        self._socket.setblocking(False)
        self.address = 0
        self._map: mmap.mmap | None = None
        self._memory: NDArray[np.uint8] | None = None

    def map_ring(self, name: str, size: int) -> None:
        """Map the sidecar's ring, read-only: a trainer cannot damage it."""
        fd = os.open(self._folder / name, os.O_RDONLY)
        try:
            self._map = mmap.mmap(fd, size, prot=mmap.PROT_READ)
        finally:
            os.close(fd)
        self._memory = np.frombuffer(self._map, np.uint8)
        self.address = self._memory.__array_interface__["data"][0]

    def slot_buffers(self, unit: trainer_pb2.Unit) -> list[NDArray[np.uint8]]:
        """The unit's buffers as views of the ring; together they own the slot."""
        offsets, sizes = list(unit.offsets), list(unit.sizes)
        end = max((o + s for o, s in zip(offsets, sizes, strict=True)), default=unit.slot)
        owner = np.asarray(_Slot(self, unit.slot, unit.slot, max(0, end - unit.slot)))
        return [
            owner[o - unit.slot : o - unit.slot + s] for o, s in zip(offsets, sizes, strict=True)
        ]

    def write_file(self, name: str, data: bytes) -> None:
        """Put a file into the folder that the sidecar shares."""
        fd = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, shared_files.mode(self._folder))  # whatever the umask says
            file.write(data)

    # Messages.

    def send(self, **message: Any) -> None:
        """Send one `FromTrainer` message, given as its field.

        Raises:
            SidecarGone: nobody reads any more, or has for as long as anybody would wait.
        """
        packet = trainer_pb2.FromTrainer(**message).SerializeToString()
        if len(packet) > _PACKET_BYTES // 2:
            raise ConfigError(
                f"a message of {len(packet):,} bytes to the sidecar is too long: the dataset's "
                "element_spec has too many components"
            )
        if not self._send_within(_SEND_SECONDS, packet):
            raise SidecarGone(f"it has read nothing for {_SEND_SECONDS:.0f} s")

    def _send_within(self, seconds: float, packet: bytes) -> bool:
        """Send; False where the sidecar, which has some hundred packets to read, reads none.

        Raises:
            SidecarGone: nobody reads any more.
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
                raise SidecarGone(str(error)) from error

    def receive(self, seconds: float) -> trainer_pb2.FromSidecar | None:
        """The next message, or None when none came in time.

        Raises:
            SidecarGone: nobody writes any more.
        """
        self._receiving = True  # before the look at what is released, or one could be missed
        self._idle = False
        self._send_released()
        try:
            if seconds and not self._poll(select.POLLIN, seconds):
                return None
            packet = self._receive()
        except BlockingIOError:
            return None
        except OSError as error:
            raise SidecarGone(str(error)) from error
        finally:
            self._receiving = False
        if not packet:
            raise SidecarGone("it closed the connection")
        return trainer_pb2.FromSidecar.FromString(packet)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(_PACKET_BYTES)
        except ConnectionResetError:
            # It closed with packets unread, which is told once. What it had sent is still there.
            return self._socket.recv(_PACKET_BYTES)

    def rest(self) -> Iterator[trainer_pb2.FromSidecar]:
        """What a sidecar that is gone, or that does not write any more, has sent before."""
        try:
            while (message := self.receive(0)) is not None:
                yield message
        except SidecarGone:
            pass

    def ended_within(self, seconds: float) -> bool:
        """Wait until the other side writes no more, or we do not read any more; whether so."""
        return self._poll(_HANGUP, seconds)

    def _poll(self, events: int, seconds: float) -> bool:
        waiting = select.poll()
        waiting.register(self._socket, events)
        return bool(waiting.poll(seconds * 1000))

    # Slots.

    def release(self, slot: int) -> None:
        """Hand a slot back; from any thread, at any time, without a lock.

        At once while somebody waits for the next batch, which may need the room, or where nobody
        is to wait soon; otherwise with the next wait, or when there are some.
        """
        if os.getpid() != self._pid:
            return  # a fork of the trainer: the slot is still the parent's
        self._released.append(slot)
        if self._receiving or self._idle or len(self._released) >= _RELEASED_SLOTS:
            self._send_released()

    def be_idle(self) -> None:
        """No wait is to come soon that would tell what was released: tell it at once till then."""
        self._idle = True
        self._send_released()

    def _send_released(self) -> None:
        slots = []
        while self._released:
            try:
                slots.append(self._released.popleft())
            except IndexError:  # another thread was quicker
                break
        if not slots:
            return
        message = trainer_pb2.FromTrainer(release=trainer_pb2.Release(slots=slots))
        # Where no later wait makes good for it, a sidecar that lags behind is waited for.
        seconds = _RELEASE_SECONDS if self._idle else 0.0
        try:
            if not self._send_within(seconds, message.SerializeToString()):
                self._released.extend(slots)  # with the next wait, or when there are more
                self._idle = False  # once is enough
        except SidecarGone:
            pass  # and its ring with it

    def shutdown(self) -> None:
        """Stop reading. Batches still held stay readable, and are handed back as before.

        Whoever waits in `receive` is woken; it gives what had come, and then `SidecarGone`.
        """
        try:
            self._socket.shutdown(socket.SHUT_RD)
        except OSError:
            pass
        self.be_idle()

    def drop_unread(self) -> None:
        """After `shutdown`: hand back the batches that had come."""
        for message in self.rest():
            units = [message.unit] if message.HasField("unit") else message.units.units
            self._released.extend(unit.slot for unit in units)
        self.be_idle()

    def __del__(self) -> None:
        # Nobody reads and every slot is handed back: each of them refers to this channel.
        self._socket.close()
