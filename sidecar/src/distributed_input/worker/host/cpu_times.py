"""The CPU time that all processes of this host have used, from the files of the Linux kernel.

There may be two limits: the CPUs of the machine that this process may run on, and the CPU limits of
its control groups (version 2). A container that shares the limit with the trainer sees both.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import heap

_TICKS = os.sysconf("SC_CLK_TCK")  # per second
_IDLE_FIELDS = (4, 5)  # idle, iowait
_USED_FIELDS = 9  # user to steal; guest time is also user time


@dataclass(frozen=True)
class CpuPool:
    """Some CPUs, and how much they were used.

    Attributes:
        cpus: number of CPUs; a control group may have a fraction.
        used: CPU time of all processes that run on them, in seconds since any fixed time.
    """

    cpus: float
    used: float


@dataclass(frozen=True)
class CpuTimes:
    """Counters of the host at one time. All times in seconds.

    Attributes:
        time: monotonic time.
        own: CPU time of this process.
        pools: the machine's CPUs, and one pool for each control group with a limit.
    """

    time: float
    own: float
    pools: tuple[CpuPool, ...]


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use; on macOS, all."""
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def read_cpu_times(root: Path = Path("/")) -> CpuTimes:
    """Return the counters of this process's host.

    Args:
        root: root of the file system.

    Raises:
        ConfigError: the host's CPU times cannot be read.
    """
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    try:
        machine = _machine((root / "proc/stat").read_text(), cpus)
    except (OSError, ValueError, IndexError) as error:
        raise ConfigError(
            f"cannot read the CPU times of this host from {root / 'proc/stat'} ({error}): run this "
            "worker on Linux, or without --idle-cpus"
        ) from error
    limited = (pool for group in heap.control_groups(root) for pool in _limited(group))
    return CpuTimes(time.monotonic(), time.process_time(), (machine, *limited))


def _machine(stat: str, cpus: Collection[int]) -> CpuPool:
    """Return the pool of the CPUs of /proc/stat that are in `cpus`."""
    used = count = 0
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cpus:
            count += 1
            used += sum(
                int(ticks)
                for index, ticks in enumerate(fields[: _USED_FIELDS - 1], 1)
                if index not in _IDLE_FIELDS
            )
    if not count:
        raise ValueError("it has no line for the CPUs of this process")
    return CpuPool(count, used / _TICKS)


def _limited(group: Path) -> Iterator[CpuPool]:
    with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
        quota, period = (group / "cpu.max").read_text().split()
        cpus = int(quota) / int(period)
        for line in (group / "cpu.stat").read_text().splitlines():
            if line.startswith("usage_usec "):
                yield CpuPool(cpus, int(line.split()[1]) / 1e6)
