"""The saved states of splits that are being read, for the worker that continues after a failure."""

from __future__ import annotations

import threading
from dataclasses import dataclass

LIMIT_BYTES = 16 << 20


@dataclass
class _Kept:
    token: bytes
    is_tried: bool = False


class ResumeStates:
    """The latest state of each split, up to a total size. Thread-safe.

    A lost state costs a replay. A state that a worker has begun to use is not sent again before
    rows have come of it: if it breaks workers, it must not break one after the other.

    Args:
        limit: maximum bytes of all states.
    """

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._kept: dict[int, _Kept] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, split: int, token: bytes) -> None:
        """Replace the state of a split. It has none if there is no room for the new one."""
        with self._lock:
            self._remove(split)
            if self._bytes + len(token) <= self._limit:
                self._kept[split] = _Kept(token)
                self._bytes += len(token)

    def of(self, split: int) -> bytes:
        """Return the state of a split, or b"" if it has none that may be used."""
        with self._lock:
            kept = self._kept.get(split)
            return b"" if kept is None or kept.is_tried else kept.token

    def record_begin(self, split: int) -> None:
        """Record that a worker begins to produce the rows before the start of the stream."""
        with self._lock:
            if split in self._kept:
                self._kept[split].is_tried = True

    def record_rows(self, split: int) -> None:
        """Record that rows have come, so that the state of the split may be used again."""
        with self._lock:
            if split in self._kept:
                self._kept[split].is_tried = False

    def drop(self, split: int) -> None:
        """Remove the state of a split."""
        with self._lock:
            self._remove(split)

    def _remove(self, split: int) -> None:
        kept = self._kept.pop(split, None)
        self._bytes -= len(kept.token) if kept is not None else 0
