"""Time that passes only in waits: a test of a wait of ten minutes takes milliseconds.

Modules read `time.monotonic()` and wait with `threading`, so a test replaces these two names in
them. Sockets and other waits call `VirtualTime.wait`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest

_REAL_SECONDS = 20.0
"""Timeout of a thread that computes, on a busy machine."""


def _never() -> bool:
    return False


class VirtualTime:
    """A clock that advances to the earliest deadline once all its threads wait.

    Args:
        patch: undoes the replacements after the test.
        threads: number of threads that use the clock.
    """

    def __init__(self, patch: pytest.MonkeyPatch, threads: int = 1) -> None:
        self.now = 1000.0
        self._patch, self._threads = patch, threads
        self._changed = threading.Condition()
        self._waiting: dict[int, tuple[float, Callable[[], object]]] = {}

    def replace(self, *modules: ModuleType) -> None:
        """Let modules use this clock; call it before they create conditions and events."""
        for module in modules:
            if hasattr(module, "time"):
                self._patch.setattr(module, "time", self)
            if hasattr(module, "threading"):
                replaced = SimpleNamespace(**vars(threading))
                replaced.Condition = lambda lock=None: _Condition(self, lock)
                replaced.Event = lambda: _Event(self)
                self._patch.setattr(module, "threading", replaced)

    def monotonic(self) -> float:
        """Return the time, as `time.monotonic`."""
        return self.now

    def time_ns(self) -> int:
        """Return the time, as `time.time_ns`."""
        return int(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let time pass, as `time.sleep`."""
        self.wait(seconds)

    def wait(self, seconds: float, ready: Callable[[], object] = _never) -> bool:
        """Wait until `ready()` or for `seconds`. Return whether it is ready."""
        me = threading.get_ident()
        with self._changed:
            end = self.now + seconds
            while not (done := bool(ready())) and self.now < end:
                self._waiting[me] = end, ready
                self._advance()
                if self.now < end and not ready():
                    assert self._changed.wait(_REAL_SECONDS), "a thread of the clock does not wait"
            self._waiting.pop(me, None)
            return done

    def leave(self) -> None:
        """Use the clock in this thread no more; the others check whether they are ready."""
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()

    def _advance(self) -> None:
        if len(self._waiting) == self._threads:
            if not any(ready() for _, ready in self._waiting.values()):
                self.now = min(end for end, _ in self._waiting.values())
                assert self.now < math.inf, "all threads wait without a deadline"
            self._changed.notify_all()


class _Condition(threading.Condition):
    """A condition that nothing notifies: the test has one thread."""

    def __init__(self, clock: VirtualTime, lock: threading.Lock | None) -> None:
        super().__init__(lock)
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "a wait without a deadline"
        self._clock.sleep(timeout)
        return False


class _Event(threading.Event):
    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "a wait without a deadline"
        return self._clock.wait(timeout, self.is_set)
