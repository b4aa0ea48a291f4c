"""The sidecar's shared memory, mapped into the trainer: a batch is views into it, not a copy.

A `_Slot` object owns the slot of each batch. Every array made from the batch keeps its `_Slot`
alive, and the last reference releases the slot. TensorFlow drops its reference to the memory when
the tensor is freed. `_Slot` implements `__array_interface__` and is not an ndarray subclass:
`np.asarray` collapses views of a subclass, so the slot would be released while tensors read it.

Numpy arrays of a batch are read-only, because several may view the same rows. TensorFlow gives
functions that it calls (`tf.numpy_function`) writable arrays of a tensor's memory, and updates
variables in place. So the memory itself is writable. The sidecar only writes to it, and writes a
slot again after its release. The mapping is shared: a private one would keep the pages that the
trainer wrote, and not show what the sidecar writes to them later.

If several processes read the same slots, a write of one would change the batch of the others. What
may write gets a copy then: `Batch.copied`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import ProtocolError
from distributed_input.api.proto import trainer_pb2

_ALIGN = 64  # bytes; TensorFlow reads memory in place only at this alignment


@dataclass(frozen=True)
class Batch:
    """One unit in shared memory: the rows that one replica gets in one step.

    Attributes:
        rows: the number of rows.
        buffers: one 1-D, read-only uint8 array for each column of the row spec.
    """

    rows: int
    buffers: list[NDArray[np.uint8]]

    def copied(self) -> Batch:
        """Return the rows in writable memory that only this process has."""
        return Batch(self.rows, [_copied(one) for one in self.buffers])


def _copied(buffer: NDArray[np.uint8]) -> NDArray[np.uint8]:
    memory = np.empty(len(buffer) + _ALIGN, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGN
    copy = memory[start : start + len(buffer)]
    copy[:] = buffer
    return copy


class _Slot:
    """The owner of one slot: releases it when nothing refers to it any more."""

    __slots__ = ("__array_interface__", "_release", "_slot")

    def __init__(self, release: Callable[[int], None], slot: int, address: int, size: int) -> None:
        self._release = release
        self._slot = slot
        self.__array_interface__ = {
            "data": (address, True),  # read-only
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._release(self._slot)


class Slots:
    """The file of the slots, mapped.

    Attributes:
        address: its address in this process.
    """

    def __init__(self, path: Path, size: int) -> None:
        fd = os.open(path, os.O_RDWR)
        try:
            self._map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(fd)
        self._memory = np.frombuffer(self._map, np.uint8)
        self.address: int = self._memory.__array_interface__["data"][0]

    def batch(self, unit: trainer_pb2.Unit, release: Callable[[int], None]) -> Batch:
        """Return the unit as views of its slot.

        The last of these views calls `release`, which must keep this object alive.

        Raises:
            ProtocolError: the unit is outside of the file.
        """
        spans = list(zip(unit.offsets, unit.sizes, strict=False))
        end = max((offset + size for offset, size in spans), default=unit.slot)
        start = min(unit.offsets, default=unit.slot)
        # A view of other memory would end the process, or show it to the training loop.
        if end > len(self._memory) or start < unit.slot or len(unit.offsets) != len(unit.sizes):
            raise ProtocolError(
                f"the sidecar sent a batch outside of its {len(self._memory):,} bytes of shared "
                "memory: use the same release of distributed-input in the trainer and the "
                "sidecar's image"
            )
        size = max(0, end - unit.slot)
        whole = np.asarray(_Slot(release, unit.slot, self.address + unit.slot, size))
        starts = [(offset - unit.slot, size) for offset, size in spans]
        return Batch(unit.rows, [whole[start : start + size] for start, size in starts])
