"""An iterator of the next epoch for Python loops, which may fetch batches before they use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class LoopCounter:
    """Counts the batches that a Python loop has requested for use: a `StepCounter` of one iterator.

    Attributes:
        fetched: the requests of the loop, also the one that got the end of the epoch.
        ahead: how many batches the loop has fetched, and not used, at each time.
        ended: the loop has got the end of the epoch.
        is_invalid: a position was restored since the iterator began.
    """

    iterators = 1

    def __init__(self) -> None:
        self.fetched = 0
        self.ahead = 0
        self.ended = False
        self.is_invalid = False

    @property
    def used(self) -> int:
        """The requests of the loop for batches that it has used. At the end, all of them."""
        return self.fetched if self.ended else max(0, self.fetched - self.ahead)

    def requested(self, iterator: int) -> int:  # noqa: ARG002 - it has one
        """Return the number of requests."""
        return self.used

    def invalidate(self) -> None:
        """Note that a position was restored: the next request of this iterator is an error."""
        self.is_invalid = True


class LazyEpoch:
    """An iterator of the next epoch, which begins with the first request.

    Frameworks create iterators that they drop before their first batch. These cost no epoch.

    Args:
        begin: begins the epoch, with a counter of its loop, and returns its batches.
    """

    def __init__(self, begin: Callable[[LoopCounter], Iterator[Any]]) -> None:
        self.counter = LoopCounter()
        self._begin = begin
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._begin(self.counter)
        self.counter.fetched += 1
        try:
            return next(self._batches)
        except StopIteration:
            self.counter.ended = True
            raise
