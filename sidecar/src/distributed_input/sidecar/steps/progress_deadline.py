"""A deadline that moves with each progress, and the times at which to report the wait."""

from __future__ import annotations

import time

_FIRST_SECONDS = 10.0  # shorter waits are not reported


class ProgressDeadline:
    """The deadline of one wait: it passes when there was no progress for a number of seconds.

    Args:
        seconds: time without progress.
    """

    __slots__ = ("_advanced_at", "_began", "_observed", "_report_at", "_report_gap", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = self._advanced_at = time.monotonic()
        self._report_gap = min(_FIRST_SECONDS, seconds / 4)
        self._report_at = self._began + self._report_gap
        self._observed: object = None

    def record_progress(self, at: float) -> None:
        """Record progress at the monotonic time `at`."""
        self._advanced_at = max(self._advanced_at, at)

    def observe(self, state: object) -> None:
        """Record progress now if `state` differs from the state observed before."""
        if state != self._observed:
            self._observed, self._advanced_at = state, time.monotonic()

    @property
    def without_progress(self) -> float:
        """Seconds since the last progress."""
        return time.monotonic() - self._advanced_at

    @property
    def has_passed(self) -> bool:
        """Whether there was no progress for `seconds`."""
        return self.without_progress > self.seconds

    def report_due(self) -> float | None:
        """Return the seconds waited so far if a report is due now, else None.

        Reports get rarer with time. There are at least four before the deadline passes.
        """
        now = time.monotonic()
        if now < self._report_at:
            return None
        self._report_gap = min(2 * self._report_gap, self.seconds / 4)
        self._report_at = now + self._report_gap
        return now - self._began
