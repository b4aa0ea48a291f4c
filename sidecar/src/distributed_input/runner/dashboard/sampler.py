"""Ask the dispatchers again and again, also after they went away."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from distributed_input.api.errors import DistributedInputError
from distributed_input.runner.dashboard.history import InputHistory
from distributed_input.runner.dispatchers import FoundDispatcher

_FORGET_SECONDS = 600.0
_STALE_INTERVALS = 3
"""Number of missed samples after which the figures are stale."""
_GONE = "its run has ended"

Open = Callable[[], AbstractContextManager[Sequence[FoundDispatcher]]]
View = Callable[[InputHistory], dict[str, Any]]


class Sampler:
    """The histories of all inputs, filled by a thread. A context manager.

    `found` opens the dispatchers, again and again. `view` returns the JSON values of a history
    with a sample. `seconds` are between two samples, and `timeout` is that of a response. After
    `search` seconds, the dispatchers are found again: there may be new runs, and other reports.
    """

    def __init__(
        self, found: Open, view: View, seconds: float, timeout: float, search: float
    ) -> None:
        self._open, self._view = found, view
        self._seconds, self._timeout, self._search = seconds, timeout, search
        self._lock = threading.Lock()
        self._histories: dict[tuple[str, str], InputHistory] = {}
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
            histories = self._histories.values()
            shown = [one for one in histories if one.samples]
            names = Counter(one.name for one in shown)
            inputs = [
                {
                    "input": one.name or None,
                    "place": (one.place or one.address or None) if names[one.name] > 1 else None,
                    "error": one.error or None,
                    "seconds_old": round(now - one.samples[-1][0], 1),
                    "problems": list(one.problems),
                    "chart": one.chart(now),
                    **self._view(one),
                }
                for one in shown
            ]
            silent = (one.error for one in histories if one.error and not one.samples)
            return {
                "interval": self._seconds,
                # One after the other, each dispatcher may take until the time limit.
                "stale_after": _STALE_INTERVALS * self._seconds + self._timeout * len(histories),
                "error": self._error or next(silent, None),
                "inputs": inputs,
            }

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                with self._open() as found:
                    self._found(found)
                    self._sample_until_failure(found)
            except Exception as error:  # noqa: BLE001 - the page shows it, and the thread goes on
                known = isinstance(error, DistributedInputError)
                self._failed(str(error) if known else f"{type(error).__name__}: {error}")
                self._end.wait(self._seconds)

    def _sample_until_failure(self, found: Sequence[FoundDispatcher]) -> None:
        """Ask all dispatchers again and again, until one does not respond or it is time to look."""
        search, responded = time.monotonic() + self._search, True
        while responded and not self._end.is_set() and (began := time.monotonic()) < search:
            responses = [self._sample(one) for one in found]
            responded = all(responses)
            self._end.wait(max(0.0, began + self._seconds - time.monotonic()))

    def _sample(self, one: FoundDispatcher) -> bool:
        """Add a sample of one dispatcher, or why there is none. Return whether it responded."""
        sample, failure = None, ""
        try:
            sample = one.client.status(self._timeout)
        except DistributedInputError as error:
            failure = str(error)
        with self._lock:
            empty = InputHistory(one.name, one.address, one.place)
            history = self._histories.setdefault(_key(one), empty)
            history.problems = one.problems
            if sample is None:
                history.error = failure
                return False
            history.add(sample, time.monotonic())
            return True

    def _found(self, found: Sequence[FoundDispatcher]) -> None:
        """Mark the inputs that were not found again, and forget those of long ago."""
        now, known = time.monotonic(), {_key(one) for one in found}
        with self._lock:
            self._error = ""
            for each, one in list(self._histories.items()):
                if each not in known:
                    one.error = one.error or _GONE
                    if not one.samples or one.samples[-1][0] < now - _FORGET_SECONDS:
                        del self._histories[each]

    def _failed(self, text: str) -> None:
        with self._lock:
            self._error = text
            for one in self._histories.values():
                one.error = text


def _key(one: FoundDispatcher) -> tuple[str, str]:
    """Return what identifies an input. Several runs may have inputs of the same name."""
    return one.name, one.address
