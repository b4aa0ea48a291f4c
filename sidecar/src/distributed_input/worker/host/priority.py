"""A low CPU priority, for a worker beside a trainer."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

LOW = 10
"""Niceness of a worker on the trainer's machine. It computes ahead, so its bursts can wait. At the
priority of the trainer, they delay the steps of a trainer that has enough rows."""
LOWEST = 19
"""Niceness of a worker that uses only idle CPUs."""


def lower_cpu_priority(niceness: int, root: Path = Path("/")) -> None:
    """Give all threads of this process a low CPU priority. New threads inherit it.

    Linux may schedule each session as one group ("autogroup"). Niceness then counts only within a
    session, and the session has a niceness of its own. This function sets it if this process leads
    its session, as all processes of `distributed-input run` do.

    Args:
        niceness: LOW or LOWEST. A priority that is lower already stays.
        root: root of the file system.
    """
    lowered: set[int] = set()
    # Each thread has its own niceness. A thread that starts meanwhile may have the old one.
    while threads := _threads() - lowered:
        for thread in threads:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                before = os.getpriority(os.PRIO_PROCESS, thread)
                os.setpriority(os.PRIO_PROCESS, thread, max(before, niceness))
        lowered |= threads
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):  # the kernel has no such groups
            (root / "proc/self/autogroup").write_text(str(niceness))


def _threads() -> set[int]:
    """Return the threads of this process; without /proc, 0 for the process, which has one value."""
    try:
        return {int(name) for name in os.listdir("/proc/self/task")}
    except OSError:
        return {0}
