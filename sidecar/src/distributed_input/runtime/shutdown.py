"""How a process ends: on a signal, within its grace period, and never after its parent."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from types import FrameType

from distributed_input.runtime import logs

DIE_WITH_PARENT_ENV = "DISTRIBUTED_INPUT_DIE_WITH_PARENT"
_PR_SET_PDEATHSIG = 1
_HARD_STOP_EXTRA_SECONDS = 5.0
_SLICE_SECONDS = 0.5
_log = logs.get("runtime.shutdown")


class Shutdown:
    """Asked to stop: SIGTERM or SIGINT once. The second signal exits at once.

    `install` belongs in the main thread. From the first signal on the process has `grace`
    seconds to drain; one that hangs longer is ended with status 1, and says where it hung.

    The handler runs in the main thread between any two of its instructions, so it takes no lock
    that this thread may hold: no event, no thread, no log.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._asked = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def install(self) -> None:
        """Take over SIGTERM and SIGINT. Raises ValueError outside the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is time to stop, at most `timeout` seconds; whether it is.

        In slices: a signal that comes just before the main thread blocks does not end the wait,
        and Python would run its handler when the thread wakes, so never.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._asked:
            left = _SLICE_SECONDS if end is None else min(_SLICE_SECONDS, end - time.monotonic())
            if left <= 0:
                break
            select.select([self._reader], [], [], left)
        return self._asked

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._asked:
            os._exit(128 + number)
        self._asked = True
        # In C, so it comes whatever Python's threads wait for.
        faulthandler.dump_traceback_later(self.grace + _HARD_STOP_EXTRA_SECONDS, exit=True)
        os.write(self._writer, b"x")


def die_with_parent(env: Mapping[str, str]) -> None:
    """End this process when its parent ends, if DISTRIBUTED_INPUT_DIE_WITH_PARENT asks for it.

    "1" asks; a larger number is the parent's process id, and asks even if that parent is gone
    already. Linux: the kernel sends SIGTERM when the *thread* that started us ends, so start
    children from a thread that lives as long as they should. Elsewhere nothing happens.
    """
    wanted = env.get(DIE_WITH_PARENT_ENV, "")
    if not wanted.isdecimal() or int(wanted) < 1 or not sys.platform.startswith("linux"):
        return
    parent = int(wanted) if int(wanted) > 1 else os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        _log.warning("prctl failed: will not end with the parent", errno=ctypes.get_errno())
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)
