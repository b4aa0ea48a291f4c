"""The decision whether to open a broken stream again."""

from __future__ import annotations

from distributed_input.api.errors import DatasetFnError, DistributedInputError, TerminalError

_BACKOFF_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0)
_DATASET_ATTEMPTS = 3  # an error of the dataset may be caused by one node: try others


class StreamRetry:
    """The failed attempts of one stream since it last made progress.

    Times are monotonic seconds.

    Args:
        timeout_seconds: time without progress after which the stream fails.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._attempts = 0
        self._dataset_errors = 0
        self._replayed = 0  # most rows that one attempt has replayed
        self._failing_since: float | None = None

    def waited(self, now: float) -> float:
        """Return the seconds without progress. The first call after progress starts the time."""
        if self._failing_since is None:
            self._failing_since = now
        return now - self._failing_since

    def is_timed_out(self, now: float) -> bool:
        """Return whether there was no progress for `timeout_seconds`."""
        return self.waited(now) >= self._timeout_seconds

    def record_failure(
        self, error: DistributedInputError, received: bool, replayed: int, now: float
    ) -> None:
        """Record a failed attempt.

        A replay that got further than all attempts before is progress too.

        Args:
            error: error that ended the attempt.
            received: whether the attempt received rows.
            replayed: number of rows that the worker replayed.
            now: current time.
        """
        if replayed > self._replayed:
            self._replayed, self._failing_since = replayed, None
        if received:
            self._attempts = self._dataset_errors = self._replayed = 0
            self._failing_since = None
        self._dataset_errors += isinstance(error, DatasetFnError)
        self.waited(now)

    def is_terminal(self, error: DistributedInputError) -> bool:
        """Return whether another attempt would fail with the same error."""
        if isinstance(error, DatasetFnError):
            return self._dataset_errors >= _DATASET_ATTEMPTS
        return isinstance(error, TerminalError)

    def next_delay(self) -> float:
        """Return the seconds to wait before the next attempt."""
        delay = _BACKOFF_SECONDS[min(self._attempts, len(_BACKOFF_SECONDS) - 1)]
        self._attempts += 1
        return delay
