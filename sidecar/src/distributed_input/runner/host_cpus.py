"""How busy the CPUs of this machine are, from the counters of the Linux kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = slice(3, 5)  # idle, iowait
_ALL = slice(0, 8)  # user to steal; guest time is also user time


@dataclass(frozen=True)
class HostCpus:
    """Counters of the CPUs that this process may run on, at one time.

    Attributes:
        used: ticks in use since the machine started.
        total: all ticks.
    """

    used: int
    total: int

    def busy_since(self, earlier: HostCpus) -> float:
        """Return the share of the CPUs that was in use since an earlier reading, 0 to 1.

        The load average of the system is no such measure: it still has what ended a minute ago.
        """
        return (self.used - earlier.used) / max(1, self.total - earlier.total)


def read(stat: Path = _STAT) -> HostCpus | None:
    """Return the counters. None: this machine has none.

    Args:
        stat: file with the counters.
    """
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    used = total = 0
    try:
        for line in stat.read_text().splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cpus:
                ticks = [int(one) for one in fields]
                total += sum(ticks[_ALL])
                used += sum(ticks[_ALL]) - sum(ticks[_IDLE])
    except (OSError, ValueError):
        return None
    return HostCpus(used, total)


def busy_share(
    seconds: float, stat: Path = _STAT, wait: Callable[[float], None] = time.sleep
) -> float:
    """Wait some seconds, and return the share of the CPUs that was in use; 0 if it is unknown."""
    before = read(stat)
    wait(seconds)
    after = read(stat)
    return after.busy_since(before) if before and after else 0.0
