"""A clock for expiry that counts only the time in which this process ran.

A dispatcher that was stopped or starved has received no heartbeats, and must not expire everyone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TICK_SECONDS = 0.5
_LATE_SECONDS = 1.0  # a longer delay means that the process was stopped


class RunningClock:
    """Seconds since an arbitrary start, without long gaps between calls of `now`.

    Call `now` at least every TICK_SECONDS.

    Args:
        read: a monotonic clock, in seconds.
    """

    def __init__(self, read: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._ticked = read()
        self._lost = 0.0

    def now(self) -> float:
        """Return the time in seconds. It never decreases."""
        with self._lock:
            reading = self._read()
            late = reading - self._ticked - TICK_SECONDS
            if late > _LATE_SECONDS:
                self._lost += late
            self._ticked = reading
            return reading - self._lost
