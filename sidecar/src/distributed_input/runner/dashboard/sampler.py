"""Ask the dispatchers again and again, also after they went away."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from distributed_input.api.errors import DistributedInputError
from distributed_input.runner.dashboard.history import InputHistory
from distributed_input.runner.dispatchers import FoundDispatcher

_SEARCH_SECONDS = 20.0
"""Time after which to look for new runs."""
_FORGET_SECONDS = 600.0
_GONE = "its run has ended"

Open = Callable[[], AbstractContextManager[Sequence[FoundDispatcher]]]
View = Callable[[InputHistory], dict[str, Any]]


class Sampler:
    """The histories of all inputs, filled by a thread. A context manager.

    Args:
        found: opens the dispatchers; it is called again after one did not respond.
        view: JSON values of a history with at least one sample.
        seconds: time between two samples.
        timeout: time limit for a response.
        new_runs: whether to call `found` again after some time, because it may find more.
    """

    def __init__(
        self, found: Open, view: View, seconds: float, timeout: float, *, new_runs: bool = True
    ) -> None:
        self._open, self._view = found, view
        self._seconds, self._timeout = seconds, timeout
        self._search_seconds = _SEARCH_SECONDS if new_runs else math.inf
        self._lock = threading.Lock()
        self._histories: dict[str, InputHistory] = {}
        self._error = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(self._timeout + self._seconds)

    def values(self) -> dict[str, Any]:
        """Return what the page shows as JSON values."""
        now = time.monotonic()
        with self._lock:
            inputs = [
                {
                    "input": one.name or None,
                    "error": one.error or None,
                    "seconds_old": round(now - one.samples[-1][0], 1),
                    "problems": list(one.problems),
                    "chart": one.chart(now),
                    **self._view(one),
                }
                for one in self._histories.values()
            ]
            return {"interval": self._seconds, "error": self._error or None, "inputs": inputs}

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with self._open() as found:
                    self._found(found)
                    self._sample_until_failure(found)
            except DistributedInputError as error:
                self._failed(str(error))
                self._end.wait(self._seconds)

    def _sample_until_failure(self, found: Sequence[FoundDispatcher]) -> None:
        search = time.monotonic() + self._search_seconds
        while not self._end.is_set() and time.monotonic() < search:
            began = time.monotonic()
            for one in found:
                sample = one.client.status(self._timeout)
                with self._lock:
                    history = self._histories.setdefault(key(one), InputHistory(one.name))
                    history.problems = one.problems
                    history.add(sample, time.monotonic())
            self._end.wait(max(0.0, began + self._seconds - time.monotonic()))

    def _found(self, found: Sequence[FoundDispatcher]) -> None:
        """Mark the inputs that were not found again, and forget those of long ago."""
        now, known = time.monotonic(), {key(one) for one in found}
        with self._lock:
            self._error = ""
            for name, one in list(self._histories.items()):
                if name not in known:
                    one.error = one.error or _GONE
                    if one.samples[-1][0] < now - _FORGET_SECONDS:
                        del self._histories[name]

    def _failed(self, text: str) -> None:
        with self._lock:
            self._error = text
            for one in self._histories.values():
                one.error = text


def key(one: FoundDispatcher) -> str:
    """Return what identifies an input: its name, or the address of its dispatcher."""
    return one.name or one.client.address
