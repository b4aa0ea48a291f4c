"""The time that fast streams may wait for slow streams of the same split."""

from __future__ import annotations

MAX_SECONDS = 10.0
_SHARE = 0.02  # of the elapsed time


class WaitBudget:
    """Seconds that streams may still wait.

    Waiting spends the budget. It refills slowly with the elapsed time, up to MAX_SECONDS. So slow
    streams can delay fast streams by MAX_SECONDS at once, and by 2 % of the time over long periods.

    Args:
        now: current time in seconds, on a monotonic clock.
    """

    def __init__(self, now: float) -> None:
        self._seconds, self._updated = MAX_SECONDS, now

    def update(self, now: float, waited: float = 0.0) -> float:
        """Spend the seconds that a stream has waited. Return the seconds that are left.

        When several streams wait at the same time, this time counts once.

        Args:
            now: current time.
            waited: seconds, until now.
        """
        elapsed = now - self._updated
        change = elapsed * _SHARE - min(waited, elapsed)
        self._seconds = min(MAX_SECONDS, self._seconds + change)
        self._updated = now
        return self._seconds
