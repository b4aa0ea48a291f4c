"""A queue of keys: each is worked on by one worker at a time, and once for many events.

It behaves like client-go's: a key that is added during its work comes again afterwards.
"""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class WorkQueue(Generic[T]):
    """The keys that are due. It belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[T] = asyncio.Queue()
        self._queued: set[T] = set()
        self._working: set[T] = set()
        self._again: set[T] = set()
        self._timers: dict[T, asyncio.TimerHandle] = {}

    def add(self, key: T) -> None:
        """Add a key, to be worked on as soon as possible."""
        self._cancel(key)
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._waiting.put_nowait(key)

    def add_after(self, key: T, seconds: float) -> None:
        """Add a key after a delay. An earlier time that is already set stays."""
        if key in self._queued:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is None or timer.when() > loop.time() + seconds:
            self._cancel(key)
            self._timers[key] = loop.call_later(seconds, self.add, key)

    async def get(self) -> T:
        """Return the next key. The caller must call `done` for it."""
        key = await self._waiting.get()
        self._queued.discard(key)
        self._working.add(key)
        return key

    def done(self, key: T) -> None:
        """End the work on a key."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def forget(self, key: T) -> None:
        """Cancel the delayed addition of a key."""
        self._cancel(key)

    def __len__(self) -> int:
        return len(self._queued)

    def _cancel(self, key: T) -> None:
        timer = self._timers.pop(key, None)
        if timer:
            timer.cancel()
