"""The time that counts for expiry: that in which this process ran.

A dispatcher that was stopped or starved for a while has heard of nobody, and must not take
that for everybody's death.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

TICK_SECONDS = 0.5
_LATE_SECONDS = 1.0  # so late was no accident of scheduling


class RunningClock:
    """Seconds since some start, without the time in which nobody asked for it.

    Somebody has to ask at least every TICK_SECONDS.

    Args:
        read: a monotonic clock, in seconds.
    """

    def __init__(self, read: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._ticked = read()
        self._lost = 0.0

    def now(self) -> float:
        """The time in seconds; never goes back."""
        with self._lock:
            read = self._read()
            late = read - self._ticked - TICK_SECONDS
            if late > _LATE_SECONDS:
                self._lost += late
            self._ticked = read
            return read - self._lost
