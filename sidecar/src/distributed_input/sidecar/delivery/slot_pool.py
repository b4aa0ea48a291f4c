"""The slots of one file of shared memory, from which a trainer reads batches in place.

The first free range that is large enough becomes a slot. Slots are released in any order, because a
training loop may keep a batch for as long as it needs. A slot is never reused before it is
released.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import mmap
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.runtime.files import shared_files

ALIGN = 64  # bytes; TensorFlow reads memory in place only at this alignment


def aligned(size: int) -> int:
    """Return `size` in bytes, rounded up to a multiple of ALIGN."""
    return -(-size // ALIGN) * ALIGN


class SlotPool:
    """A memory-mapped file with a first-fit allocator of aligned slots. Thread-safe.

    Args:
        path: file to create. All its memory is allocated at once: if pages were allocated when they
            are first written, a full volume would end the process with SIGBUS.
        size: bytes of the file.

    Raises:
        UnavailableError: the folder has no room for the file.

    Attributes:
        path: the file.
        size: bytes of the file.
        memory: the file's content, uint8[size].
    """

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.fchmod(fd, shared_files.mode(path.parent))
            _allocate(fd, path, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.memory: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self._free: list[tuple[int, int]] = [(0, size)]  # (offset, bytes), ascending, coalesced
        self._used: dict[int, int] = {}
        self._readers: dict[int, int] = {}  # of slots that several readers hold, by offset
        self._retired = False
        self._changed = threading.Condition()

    def allocate(self, size: int, deadline: float, cancelled: threading.Event) -> int | None:
        """Allocate a slot of `size` bytes.

        Wait for a release until `deadline` (monotonic seconds) or until `cancelled`.

        Returns:
            The offset of the slot in bytes, or None if the wait ended without one.

        Raises:
            ConfigError: the slot is larger than the file.
        """
        size = max(ALIGN, aligned(size))
        if size > self.size:
            raise ConfigError(
                f"a batch of {size:,} bytes does not fit into the buffer of {self.size:,} bytes. "
                f"Set spec.sidecar.buffer to at least {_mebibytes(4 * size)}Mi (four batches), or "
                f"decrease spec.batching.globalBatchSize"
            )
        with self._changed:
            while not cancelled.is_set():
                for i, (offset, length) in enumerate(self._free):
                    if length >= size:
                        rest = [(offset + size, length - size)] if length > size else []
                        self._free[i : i + 1] = rest
                        self._used[offset] = size
                        return offset
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, 0.5))
        return None

    def share(self, offset: int, readers: int) -> None:
        """Let several readers hold a slot: it is free once each of them has released it."""
        with self._changed:
            self._readers[offset] = readers

    def release(self, offset: int) -> None:
        """Release a slot. An unknown offset is ignored, because slots may be released twice."""
        with self._changed:
            others = self._readers.pop(offset, 1) - 1
            if others:
                self._readers[offset] = others
                return
            size = self._used.pop(offset, None)
            if size is None:
                return
            i = bisect.bisect(self._free, (offset, 0))
            self._free.insert(i, (offset, size))
            if i + 1 < len(self._free) and offset + size == self._free[i + 1][0]:
                self._free[i : i + 2] = [(offset, size + self._free[i + 1][1])]
            if i and sum(self._free[i - 1]) == offset:
                before = self._free[i - 1]
                i -= 1
                self._free[i : i + 2] = [(before[0], before[1] + self._free[i + 1][1])]
            if self._retired:
                self._discard(*self._free[i])
            self._changed.notify_all()

    @property
    def used(self) -> int:
        """Bytes in slots that are being filled or that the trainer holds."""
        with self._changed:
            return sum(self._used.values())

    @property
    def slots(self) -> int:
        """Number of slots that are being filled or that the trainer holds."""
        with self._changed:
            return len(self._used)

    def wake(self) -> None:
        """Make waiting calls of `allocate` check their `cancelled` event."""
        with self._changed:
            self._changed.notify_all()

    def retire(self) -> None:
        """Remove the file and free its memory, except the slots in use.

        The memory of a slot in use is freed with its release. The trainer's mappings stay valid.
        """
        self.close()
        with self._changed:
            self._retired = True
            for offset, size in self._free:
                self._discard(offset, size)

    def _discard(self, offset: int, size: int) -> None:
        """Free the memory of the whole pages in a range, if the system supports it."""
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (offset + size) // mmap.PAGESIZE * mmap.PAGESIZE
        if start < end and hasattr(mmap, "MADV_REMOVE"):
            with contextlib.suppress(OSError):  # the volume's file system cannot
                self._map.madvise(mmap.MADV_REMOVE, start, end - start)

    def close(self) -> None:
        """Remove the file. The trainer's mappings stay valid."""
        self.path.unlink(missing_ok=True)


def _allocate(fd: int, path: Path, size: int) -> None:
    """Allocate the memory of a file, or remove it.

    Raises:
        UnavailableError: the folder has no room for the file.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        else:
            os.ftruncate(fd, size)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM):
            raise
        free = shutil.disk_usage(path.parent).free
        raise UnavailableError(
            f"folder {path.parent} has no room for a buffer of {_mebibytes(size)} MiB "
            f"(spec.sidecar.buffer): {free >> 20} MiB are free. Lower spec.sidecar.buffer, drop "
            "batches that are kept, or enlarge the volume (docker run --shm-size, the sizeLimit "
            "of an emptyDir)"
        ) from error


def _mebibytes(size: int) -> int:
    return -(-size // (1 << 20))
