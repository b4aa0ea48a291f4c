"""Memory that two processes of one host map, for messages from one to the other.

The receiver creates a region and passes its file descriptor to the sender. The sender copies each
message to a free place, and the receiver reads it there. So a message is copied once. A socket of
the same host copies it twice, and needs memory of the kernel.

A region begins with a byte for each chunk. The sender sets the byte of a message's first chunk. The
receiver clears it when nothing refers to the message any more. No process waits for the other one.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

REGION_BYTES = 32 << 20
"""Size of a region. The system allocates only the pages that messages have used."""
_CHUNK = 1 << 16
_FLAGS = 4096  # bytes before the first chunk
_MOST_BYTES = _FLAGS + _FLAGS * _CHUNK
_SEALS = 1 | 2 | 4  # no other seals, no smaller size, no larger size
_NEEDED = ((os, "memfd_create"), (fcntl, "F_ADD_SEALS"))  # some builds of Python lack them


@contextlib.contextmanager
def created(size: int = REGION_BYTES) -> Iterator[int]:
    """Yield the file descriptor of a new region, whose size no process can change.

    The memory exists as long as the descriptor is open, or a process maps it.

    Args:
        size: bytes for messages, in whole chunks of 64 KiB.

    Raises:
        OSError: the system has no such memory.
    """
    _check_system()
    descriptor = os.memfd_create("distributed-input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, _FLAGS + size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_system() -> None:
    """Raise OSError if this Python cannot create memory whose size is fixed."""
    if not all(hasattr(*one) for one in _NEEDED):
        raise OSError("this Python has no shared memory whose size is fixed")


class _Region:
    """The memory of a region.

    Raises:
        OSError: it cannot be mapped.
        ValueError: it is not a region.
    """

    def __init__(self, descriptor: int) -> None:
        _check_system()
        size = os.fstat(descriptor).st_size
        if not _FLAGS < size <= _MOST_BYTES or (size - _FLAGS) % _CHUNK:
            raise ValueError(f"{size} bytes are not a region for messages")
        # Another process could otherwise cut the file: reading it would then end this process.
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise ValueError("the size of a region for messages is not fixed")
        memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        self.held, self.data = memory[:_FLAGS], memory[_FLAGS:]


class RegionWriter(_Region):
    """The sender's end of a region. One thread uses it."""

    _placed: tuple[tuple[int, int], ...] = ()  # first chunk, chunk behind the last; ascending

    def place(self, pieces: Sequence[memoryview], size: int) -> int | None:
        """Copy a message into the region.

        Returns:
            Its offset. None if there is no place now.
        """
        first = self._allocate(-(-size // _CHUNK))
        if first is None:
            return None
        at = first * _CHUNK
        for piece in pieces:
            self.data[at : at + piece.nbytes] = np.frombuffer(piece, np.uint8)
            at += piece.nbytes
        self.held[first] = 1
        return first * _CHUNK

    def _allocate(self, chunks: int) -> int | None:
        """Return the first chunk of the first place that is long enough, or None."""
        placed = [one for one in self._placed if self.held[one[0]]]
        free, index = 0, 0
        for index, (first, end) in enumerate([*placed, (len(self.data) // _CHUNK, 0)]):
            if first - free >= chunks:
                self._placed = (*placed[:index], (free, free + chunks), *placed[index:])
                return free
            free = end
        self._placed = tuple(placed)
        return None


class RegionReader(_Region):
    """The receiver's end of a region."""

    def view(self, offset: int, size: int) -> memoryview:
        """Return a message in the region. It is released when nothing refers to it any more.

        Raises:
            ValueError: no message can be there.
        """
        if offset % _CHUNK or not 0 < size <= len(self.data) - offset:
            raise ValueError(f"a message of {size} bytes at {offset} is outside of its region")
        message = self.data[offset : offset + size]
        weakref.finalize(message, _release, self.held, offset // _CHUNK).atexit = False
        # Arrays that are made from the memoryview refer to it, and so to `message`. Arrays that
        # are made from another array would refer to the whole region.
        return memoryview(message)


def _release(held: NDArray[np.uint8], first: int) -> None:
    held[first] = 0
