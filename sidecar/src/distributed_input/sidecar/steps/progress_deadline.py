"""How long one wait may last, and when people are to hear of it."""

from __future__ import annotations

import time

_FIRST_SECONDS = 10.0  # a shorter wait is nothing to tell of


class Patience:
    """One wait for what others make: over when they have got no further for so long.

    Args:
        seconds: without any progress.
    """

    __slots__ = ("_advanced_at", "_began", "_gap", "_seen", "_tell_at", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began = self._advanced_at = time.monotonic()
        self._gap = min(_FIRST_SECONDS, seconds / 4)
        self._tell_at = self._began + self._gap
        self._seen: object = None

    def advanced(self, at: float) -> None:
        """They got further at `at`, by time.monotonic()."""
        self._advanced_at = max(self._advanced_at, at)

    def saw(self, state: object) -> None:
        """How far they are; progress where that is another state than the last."""
        if state != self._seen:
            self._seen, self._advanced_at = state, time.monotonic()

    @property
    def is_over(self) -> bool:
        """They have got no further for too long."""
        return time.monotonic() > self._advanced_at + self.seconds

    def is_due(self) -> float | None:
        """Seconds waited, where that is to be told now: ever more seldom, four times at least
        before it is over.
        """
        now = time.monotonic()
        if now < self._tell_at:
            return None
        self._gap = min(2 * self._gap, self.seconds / 4)
        self._tell_at = now + self._gap
        return now - self._began
