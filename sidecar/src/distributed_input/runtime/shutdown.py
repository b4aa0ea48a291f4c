"""The end of a process: on a signal, within its grace period, and not after its parent."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from distributed_input.api.environment import DIE_WITH_PARENT_ENV
from distributed_input.runtime import logs

_PR_SET_PDEATHSIG = 1
_HARD_STOP_EXTRA_SECONDS = 20.0  # on a busy machine, the end of TensorFlow alone takes seconds
_SLICE_SECONDS = 0.5
_PARENT_SECONDS = 0.2  # between two looks at the parent, if the system has no signal for its end
_log = logs.get("runtime.shutdown")


class Shutdown:
    """Handles SIGTERM and SIGINT. The first requests a stop, the second exits at once.

    Call `install` in the main thread. After the first signal, the process has `grace` seconds to
    drain. If it hangs longer, it prints the stacks of its threads and exits with status 1.

    The handler runs in the main thread between any two instructions. It therefore must not acquire
    a lock that this thread may hold: it uses no event, no thread and no log.
    """

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._requested = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._before: dict[int, Any] = {}  # handlers before `install`

    def install(self) -> None:
        """Install the handlers of SIGTERM and SIGINT. Raise ValueError outside the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._on_signal)
        os.register_at_fork(after_in_child=self._restore_in_child)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the request to stop; return whether it came.

        It waits in slices, because a signal just before the main thread blocks does not end the
        wait, and Python runs the handler only when the thread wakes.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self._requested:
            left = _SLICE_SECONDS if end is None else min(_SLICE_SECONDS, end - time.monotonic())
            if left <= 0:
                break
            select.select([self._reader], [], [], left)
        return self._requested

    def _restore_in_child(self) -> None:
        """Restore the handlers in a forked child, for example one of a `multiprocessing.Pool`.

        Nothing in it waits here, so the signal would not end it. The handler would wake the parent,
        because both have the same pipe.
        """
        for number, before in self._before.items():
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, signal.SIG_DFL if before is None else before)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._requested:
            os._exit(128 + number)
        self._requested = True
        # Implemented in C, so it works even if all Python threads are blocked.
        faulthandler.dump_traceback_later(self.grace + _HARD_STOP_EXTRA_SECONDS, exit=True)
        os.write(self._writer, b"x")


def die_with_parent(env: Mapping[str, str]) -> None:
    """End this process when its parent ends, if DIE_WITH_PARENT_ENV is set.

    "1" enables it. A larger number is the parent's process id, and also enables it if that parent
    has already ended. Linux sends SIGTERM when the *thread* that started this process ends, so
    start children from a thread that runs as long as they should. On other systems, a thread of
    this process polls the parent.
    """
    value = env.get(DIE_WITH_PARENT_ENV, "")
    if not value.isdecimal() or int(value) < 1:
        return
    parent = int(value) if int(value) > 1 else os.getppid()
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is None:  # only Linux has it
        threading.Thread(
            target=_end_after, args=(parent,), name="die-with-parent", daemon=True
        ).start()
    elif prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        _log.warning(
            "prctl failed: this process will not end with its parent", errno=ctypes.get_errno()
        )
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _end_after(parent: int) -> None:
    """Send SIGTERM to this process when `parent` is not its parent any more."""
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
