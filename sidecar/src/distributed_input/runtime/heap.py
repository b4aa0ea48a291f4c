"""The memory limit of the process, and settings of glibc's malloc.

The settings are for buffers that are as large as a batch and short-lived.

Memory that malloc maps again after returning it costs a page fault per 4 KiB. For batches of
128 KiB that was half of the trainer's CPU time (docs/benchmarks.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# The upper bounds of malloc's own dynamic values, see mallopt(3).
_MMAP_BYTES = 32 << 20
_TRIM_BYTES = 2 * _MMAP_BYTES
_NO_LIMIT = 1 << 60  # version 1 has a number near this for "no limit"


def memory_limit(root: Path = Path("/")) -> int | None:
    """Return the memory limit of this process's control groups in bytes, or None without one.

    Args:
        root: root of the file system.
    """
    groups = root / "sys/fs/cgroup"
    found = [_read_limit(groups / "memory/memory.limit_in_bytes")]  # version 1, in a container
    found.append(_read_limit(groups / "memory.max"))
    # Version 2: the lowest limit of all levels counts.
    found += [_read_limit(group / "memory.max") for group in control_groups(root)]
    return min((limit for limit in found if limit is not None), default=None)


def control_groups(root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of this process's control groups (version 2), at all visible levels.

    Args:
        root: root of the file system.
    """
    groups = root / "sys/fs/cgroup"
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                group = groups / line[3:].lstrip("/")
                for level in (group, *group.parents):
                    if level.is_relative_to(groups):
                        yield level


def _read_limit(path: Path) -> int | None:
    try:
        limit = int(path.read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None
    return limit if limit < _NO_LIMIT else None


def arenas_within(limit: int | None, cpus: int) -> int | None:
    """Return how many heaps malloc may have, so that they keep at most a quarter of the memory.

    At least 2, and at most malloc's default for this number of CPUs. None: the default.
    """
    return None if limit is None else max(2, min(8 * cpus, limit // (4 * _TRIM_BYTES)))


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
