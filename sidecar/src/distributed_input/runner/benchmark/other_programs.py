"""The CPU time that other programs use, from the counters of the Linux kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

SECONDS = 0.5
_IDLE = slice(3, 5)  # idle, iowait
_ALL = slice(0, 8)  # user to steal; guest time is also user time


def busy_share(
    stat: Path = Path("/proc/stat"), wait: Callable[[float], None] = time.sleep
) -> float:
    """Measure which share of this process's CPUs is in use, 0 to 1. Without such a file, 0.

    The load average of the system is no such measure: it still has what ended a minute ago.

    Args:
        stat: file with the counters.
        wait: waits for a time in seconds, between two readings.
    """
    try:
        used, total = _ticks(stat.read_text())
        wait(SECONDS)
        used_later, total_later = _ticks(stat.read_text())
    except (OSError, ValueError):
        return 0.0
    return (used_later - used) / max(1, total_later - total)


def _ticks(stat: str) -> tuple[int, int]:
    """Return the used and all ticks of the CPUs that this process may run on."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    used = total = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cpus:
            ticks = [int(one) for one in fields]
            total += sum(ticks[_ALL])
            used += sum(ticks[_ALL]) - sum(ticks[_IDLE])
    return used, total
