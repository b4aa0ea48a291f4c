"""Checks of mutants, each in a fork of a process that has imported everything."""

from __future__ import annotations

import gc
import os
import resource
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence

from testing.mutation.mutants import Mutant

_SURVIVED, _KILLED = 0, 1
_MEMORY_BYTES = 4 << 30


def check_all(
    mutants: Sequence[Mutant], is_killed: Callable[[Mutant], bool], jobs: int
) -> Iterator[tuple[Mutant, str]]:
    """Yield each mutant with "killed", "survived", or "timed out", in the order of the ends.

    Args:
        mutants: what to check.
        is_killed: called in a fork. A check that uses `limit` may end the fork.
        jobs: number of forks at the same time.
    """
    gc.collect()
    gc.freeze()  # forks share these pages until one writes to them
    waiting = list(reversed(mutants))
    running: dict[int, Mutant] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            running[_fork(mutant, is_killed)] = mutant
        pid, status = os.wait()
        if pid in running:
            yield running.pop(pid), _result(os.waitstatus_to_exitcode(status))


def limit(seconds: float) -> None:
    """End this process if it does not call this again within some seconds. 0: no limit."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _fork(mutant: Mutant, is_killed: Callable[[Mutant], bool]) -> int:
    with warnings.catch_warnings():
        # Later versions of Python warn if the process has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
    killed = True
    try:
        killed = is_killed(mutant)
    finally:
        os._exit(_KILLED if killed else _SURVIVED)


def _result(status: int) -> str:
    if status == -signal.SIGALRM:
        return "timed out"
    return "survived" if status == _SURVIVED else "killed"
