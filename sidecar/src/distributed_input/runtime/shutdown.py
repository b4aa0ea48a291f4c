"""How a process ends: on a signal, within its grace period, and never after its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
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
    seconds to drain; a process that hangs longer is ended with status 1.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._event = threading.Event()

    def install(self) -> None:
        """Take over SIGTERM and SIGINT. Raises ValueError outside the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def request(self) -> None:
        """Ask to stop, as the first signal does."""
        self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is time to stop, at most `timeout` seconds; whether it is.

        In slices: a signal that comes just before the main thread blocks does not end the wait,
        and Python would run its handler when the thread wakes, so never.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._event.is_set():
            left = _SLICE_SECONDS if end is None else min(_SLICE_SECONDS, end - time.monotonic())
            if left <= 0:
                break
            self._event.wait(left)
        return self._event.is_set()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._event.is_set():
            os._exit(128 + number)
        self._event.set()
        timer = threading.Timer(self.grace + _HARD_STOP_EXTRA_SECONDS, _hard_stop)
        timer.daemon = True
        timer.start()


def _hard_stop() -> None:
    _log.error("did not stop within the grace period: exiting now")
    sys.stderr.flush()
    os._exit(1)


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
