"""A fair semaphore, which limits the elements that a worker produces at the same time."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairSemaphore:
    """A semaphore that threads acquire in the order in which they asked, as a context manager.

    `threading.Semaphore` is not fair: the running thread usually acquires again what it has just
    released. With more streams than permits, some streams starved, and the trainer with them,
    because it needs rows of all streams.

    Args:
        permits: number of threads that may hold the semaphore at the same time.
    """

    def __init__(self, permits: int) -> None:
        self._free = permits
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            permit = threading.Lock()
            permit.acquire()
            self._waiting.append(permit)
        permit.acquire()  # blocks until __exit__ of another thread releases it

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1

    @property
    def waiting(self) -> int:
        """Return the number of threads that wait for a permit."""
        with self._lock:
            return len(self._waiting)
