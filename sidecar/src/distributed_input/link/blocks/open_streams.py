"""The open streams of a worker: their number, their limit and their counters."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from distributed_input.api.errors import UnavailableError


@dataclass
class StreamCounters:
    """What a stream has done so far.

    Attributes:
        rows: rows sent, or produced if the counters are of a producer.
        bytes: bytes of these rows.
        busy_seconds: time spent producing rows.
        replayed_rows: rows before the start of the stream that were produced again.
        stall_seconds: time that encoded blocks waited to be sent.
        shared_rows: rows sent that another stream produced.
    """

    rows: int = 0
    bytes: int = 0
    busy_seconds: float = 0.0
    replayed_rows: int = 0
    stall_seconds: float = 0.0
    shared_rows: int = 0


def sum_counters(parts: Iterable[StreamCounters]) -> StreamCounters:
    """Return the sum of several streams' counters."""
    total = StreamCounters()
    for part in parts:
        for name, value in vars(part).items():
            setattr(total, name, getattr(total, name) + value)
    return total


class OpenStreams:
    """The streams that are open on all connections. Thread-safe.

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
