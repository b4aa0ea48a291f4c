"""The open streams of a worker: their number, their limit and their counters."""

from __future__ import annotations

import threading
from collections import Counter

from distributed_input.api.errors import UnavailableError
from distributed_input.link.blocks.counters import StreamCounters, sum_counters


class OpenStreams:
    """The streams that are open on all connections. Thread-safe.

    Args:
        limit: maximum number of open streams.

    Attributes:
        draining: set when new streams are refused.
        idle: set while there are no open streams.
    """

    def __init__(self, limit: int) -> None:
        self.draining = threading.Event()
        self.idle = threading.Event()
        self.idle.set()
        self._limit = limit
        self._lock = threading.Lock()
        self._open: dict[int, StreamCounters] = {}
        self._closed = StreamCounters()  # sum of the closed streams' counters
        self._failures: Counter[str] = Counter()

    def enter(self) -> StreamCounters:
        """Count one more open stream, and return its counters.

        Raises:
            UnavailableError: the worker takes no more streams.
        """
        with self._lock:
            if self.draining.is_set():
                raise UnavailableError("the worker is draining")
            if len(self._open) >= self._limit:
                raise UnavailableError(
                    f"the worker has {self._limit} streams open (--max-streams). A job needs one "
                    "for every partition, and more to read ahead. Add workers, or lower "
                    "spec.partitions or spec.sidecar.readAhead."
                )
            counters = StreamCounters()
            self._open[id(counters)] = counters
            self.idle.clear()
            return counters

    def leave(self, counters: StreamCounters) -> None:
        """Count one open stream less."""
        with self._lock:
            del self._open[id(counters)]
            self._closed = sum_counters([self._closed, counters])
            if not self._open:
                self.idle.set()

    def record_failure(self, kind: str) -> None:
        """Count an error that ended a stream, by its class."""
        with self._lock:
            self._failures[kind] += 1

    def record_stall(self, seconds: float) -> None:
        """Add time for which rows waited to be sent."""
        with self._lock:
            self._closed.stall_seconds += seconds

    @property
    def count(self) -> int:
        """Return the number of open streams."""
        with self._lock:
            return len(self._open)

    @property
    def failures(self) -> dict[str, int]:
        """Return the number of streams that ended with an error, by its class."""
        with self._lock:
            return dict(self._failures)

    def totals(self) -> StreamCounters:
        """Return the counters of all streams since the start."""
        with self._lock:
            return sum_counters([self._closed, *self._open.values()])
