"""Turns at a worker's cores, first come first served."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """A semaphore that is fair, as a context manager.

    threading's lets whoever runs take a turn that was just given back, and that is mostly the
    thread that gave it: with more streams than turns the others starved, and with them the
    trainer, which needs rows of all of them.
    """

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        mine.acquire()  # until the turn is handed over

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
