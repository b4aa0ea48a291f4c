"""A cache of the most recently used values, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class LruCache(Generic[_Value]):
    """Keeps the last value, and others as long as all have at most a number of bytes. Thread-safe.

    Args:
        max_bytes: the number of bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> _Value | None:
        """Return the value of a key; None if it is not in the cache."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: _Value, size: int) -> None:
        """Store a value of `size` bytes. Evict those that were not used for the longest time."""
        with self._lock:
            _, replaced = self._values.pop(key, (None, 0))
            self._values[key] = value, size
            self._bytes += size - replaced
            while self._bytes > self._max_bytes and len(self._values) > 1:
                _, (_, evicted) = self._values.popitem(last=False)
                self._bytes -= evicted
