"""The memory that a worker has for the buffers of its open splits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from distributed_input.api.environment import MACHINE_WORKERS_ENV
from distributed_input.runtime import heap

_SHARE = 0.5  # the rest is for TensorFlow, rows on their way, and the other processes of a host
_MEMINFO = "/proc/meminfo"


def buffer_bytes(root: Path = Path("/"), env: Mapping[str, str] = os.environ) -> int:
    """Return half of the memory limit of this container or machine; 0 if it is unknown.

    Several workers of one machine divide it.

    Args:
        root: root of the file system.
        env: environment of this process.
    """
    found = (_machine_bytes(root), heap.memory_limit(root))
    half = int(min((limit for limit in found if limit), default=0) * _SHARE)
    return half // int(env.get(MACHINE_WORKERS_ENV) or 1)


def _machine_bytes(root: Path) -> int:
    with contextlib.suppress(OSError, ValueError):
        for line in (root / _MEMINFO[1:]).read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) << 10
    return 0
