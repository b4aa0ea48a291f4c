"""glibc's malloc, set for buffers of a batch's size that come and go all the time.

Memory that malloc maps anew, or has given back and takes again, costs a page fault for every
4 KiB of it: for batches of 128 KiB that was half of the trainer's CPU (docs/benchmarks.md).
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# What malloc itself goes up to where nobody sets them: see mallopt(3).
_MMAP_BYTES = 32 << 20
_TRIM_BYTES = 2 * _MMAP_BYTES


def keep_freed_memory(arenas: int | None = None) -> None:
    """Let freed memory be used again; at most 64 MiB a heap are kept.

    Does nothing where the user has set malloc by the environment, or without glibc.

    Args:
        arenas: heaps that all threads share; None: as many as malloc likes.
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
