"""Settings of glibc's malloc for buffers that are as large as a batch and short-lived.

Memory that malloc maps again after returning it costs a page fault per 4 KiB. For batches of
128 KiB that was half of the trainer's CPU time (docs/benchmarks.md).
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# The upper bounds of malloc's own dynamic values, see mallopt(3).
_MMAP_BYTES = 32 << 20
_TRIM_BYTES = 2 * _MMAP_BYTES


def keep_freed_memory(arenas: int | None = None) -> None:
    """Make malloc keep freed memory for reuse, at most 64 MiB per heap.

    It does nothing without glibc, or if environment variables configure malloc.

    Args:
        arenas: number of heaps that all threads share; None: malloc's default.
    """
    if "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    if arenas is not None:
        mallopt(_M_ARENA_MAX, arenas)
