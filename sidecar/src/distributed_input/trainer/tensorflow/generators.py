"""Generators that TensorFlow's threads run, and the end of the program.

A thread of a dataset that prefetches waits in a generator for the next batch. If the interpreter
ends meanwhile, this thread never gets the interpreter's lock again, and the end of the dataset's
iterator waits for the thread without a limit. So before the interpreter ends, all consumers stop,
and the generators return.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from distributed_input.api.errors import UnavailableError
from distributed_input.trainer import open_consumers

_EXIT_SECONDS = 2.0  # a generator returns in milliseconds after its consumer has stopped
_QUIET_SECONDS = 0.05  # after a generator has ended, TensorFlow calls Python twice within 1 ms
_POLL_SECONDS = 0.005
_Item = TypeVar("_Item")
_open: weakref.WeakSet[TrackedGenerator[Any]] = weakref.WeakSet()
_program_ends = threading.Event()


class TrackedGenerator(Generic[_Item]):
    """The items of an iterator, for a dataset of `from_generator`.

    Attributes:
        is_busy: whether a thread is in the iterator.
        left_at: monotonic time when a thread last left it.
    """

    def __init__(self, items: Iterator[_Item]) -> None:
        self._items = items
        self.is_busy = False
        self.left_at = float("-inf")
        _open.add(self)

    def __iter__(self) -> Iterator[_Item]:
        return self

    def __next__(self) -> _Item:
        self.is_busy = True
        try:
            return next(self._items)
        except UnavailableError:
            if _program_ends.is_set():  # no loop reads the error
                raise StopIteration from None
            raise
        finally:
            self.left_at = time.monotonic()
            self.is_busy = False


def stop_all(
    now: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
) -> None:
    """Stop all consumers of this process, and wait until no generator runs, at most 2 s."""
    _program_ends.set()
    open_consumers.stop_all(UnavailableError("the program ends"))
    deadline = now() + _EXIT_SECONDS
    while now() < deadline:
        if not any(one.is_busy or now() - one.left_at < _QUIET_SECONDS for one in list(_open)):
            return
        sleep(_POLL_SECONDS)


atexit.register(stop_all)
