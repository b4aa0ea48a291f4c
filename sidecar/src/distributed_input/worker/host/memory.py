"""The memory that a worker has for the buffers of its open splits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from distributed_input.api.environment import MACHINE_WORKERS_ENV
from distributed_input.runtime import heap

_SHARE = 0.5  # the rest is for TensorFlow, rows on their way, and the other processes of a host


def buffer_bytes(root: Path = Path("/"), env: Mapping[str, str] = os.environ) -> int:
    """Return half of the memory limit of this container or machine.

    Several workers of one machine divide it.

    Args:
        root: root of the file system.
        env: environment of this process.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    half = int(min(machine, heap.memory_limit(root) or machine) * _SHARE)
    return half // int(env.get(MACHINE_WORKERS_ENV) or 1)
