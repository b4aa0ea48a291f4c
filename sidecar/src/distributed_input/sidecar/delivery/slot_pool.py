"""The ring: one file of shared memory that a trainer reads batches from in place.

Slots are handed out first-fit and come back in any order, because a training loop may
hold a batch for as long as it likes. A slot is never reused before it is released.
"""

from __future__ import annotations

import bisect
import mmap
import os
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import shared_files

ALIGN = 64  # bytes; TensorFlow reads memory in place only at this alignment


def aligned(size: int) -> int:
    """`size` in bytes, rounded up to the alignment that lets tensors alias the ring."""
    return -(-size // ALIGN) * ALIGN


class Ring:
    """A memory-mapped file of `size` bytes with an allocator of aligned slots."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.fchmod(fd, shared_files.mode(path.parent, writable=False))
            os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self.memory: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self._free: list[tuple[int, int]] = [(0, size)]  # (offset, bytes), ascending, coalesced
        self._used: dict[int, int] = {}
        self._changed = threading.Condition()

    def allocate(self, size: int, deadline: float, cancelled: threading.Event) -> int | None:
        """The offset of a free slot of `size` bytes.

        Waits for a release until `deadline` (monotonic seconds) or until `cancelled`.

        Returns:
            The offset in bytes, or None when the wait ended without a slot.

        Raises:
            ConfigError: the slot is larger than the whole ring.
        """
        size = max(ALIGN, aligned(size))
        if size > self.size:
            raise ConfigError(
                f"a batch of {size:,} bytes does not fit the ring of {self.size:,} bytes: set "
                f"spec.sidecar.buffer to at least {_mebibytes(4 * size)}Mi (four batches), or "
                f"lower spec.batching.globalBatchSize"
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

    def release(self, offset: int) -> None:
        """Give a slot back. Unknown offsets are ignored: a late release after `reset`."""
        with self._changed:
            size = self._used.pop(offset, None)
            if size is None:
                return
            i = bisect.bisect(self._free, (offset, 0))
            self._free.insert(i, (offset, size))
            if i + 1 < len(self._free) and offset + size == self._free[i + 1][0]:
                self._free[i : i + 2] = [(offset, size + self._free[i + 1][1])]
            if i and sum(self._free[i - 1]) == offset:
                before = self._free[i - 1]
                self._free[i - 1 : i + 1] = [(before[0], before[1] + self._free[i][1])]
            self._changed.notify_all()

    @property
    def used(self) -> int:
        """Bytes in slots that are being filled or that the trainer holds."""
        with self._changed:
            return sum(self._used.values())

    @property
    def slots(self) -> int:
        """Slots that are being filled or that the trainer holds."""
        with self._changed:
            return len(self._used)

    def wake(self) -> None:
        """Let waiting allocations look at their `cancelled` event."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Unlink the file. Mappings in the trainer stay valid until it drops them."""
        self.path.unlink(missing_ok=True)


def _mebibytes(size: int) -> int:
    return -(-size // (1 << 20))
