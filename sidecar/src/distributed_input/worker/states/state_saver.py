"""Saves the state of a split that runs.

A state saves the time of a replay, and costs time and memory to save. So a split saves its state
when a replay from the last state would take much longer than a save. The seconds of a replay are
measured on the rows as they are produced.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from distributed_input.api.errors import UnavailableError
from distributed_input.rows.prefix import Prefix
from distributed_input.runtime import logs
from distributed_input.worker.states.saved_state import (
    SavedState,
    StateError,
    StateTimeoutError,
    encode,
)

_log = logs.get("worker.states")
MAX_STATE_BYTES = 4 << 20
"""Maximum size of a state: it travels in one message, and sidecars keep one for each split."""
_DEADLINE_SECONDS = 20.0
_DEADLINE_ELEMENTS = 10  # TensorFlow waits for elements that are being produced
MIN_REPLAY_SECONDS = 0.5
"""Nothing is saved if a replay from the last state takes less time."""
_MAX_SHARE = 0.05  # of the time in which rows are produced
_BYTES_PER_SECOND = 32 << 20  # costs of a state on its way to the sidecar and in memory
_WAITED_SECONDS = 0.001  # an element that took longer to get was not ready


@dataclass
class SaveCost:
    """The cost of the last state of a dataset, which its next split begins with.

    Attributes:
        seconds: time and, as time, size of the last state.
        problem: why states of this dataset cannot be saved, or "".
    """

    seconds: float = 0.0
    problem: str = ""

    def record(self, seconds: float, nbytes: int) -> None:
        """Record the time to save a state, and its size."""
        self.seconds = seconds + nbytes / _BYTES_PER_SECOND


class SaveSchedule:
    """Decides when a split saves its state.

    Args:
        cost: cost of a state of the dataset.

    Attributes:
        replay_seconds: time to produce again the rows since the last state.
        longest_seconds: longest time to produce an element, of those that the split waited for.
    """

    def __init__(self, cost: SaveCost) -> None:
        self.replay_seconds = self.longest_seconds = 0.0
        self._cost = cost
        self._row_seconds: float | None = None

    def add(self, rows: int, waited: float, held: float) -> None:
        """Record an element.

        TensorFlow produces an element while the one before it is sent. If the split had to wait for
        the element, both times together are the time to produce it. Otherwise it took at most the
        time that the element before it was held.

        Args:
            rows: its number of rows.
            waited: seconds until the iterator returned it.
            held: seconds between the element before it and the request for this one.
        """
        seconds = waited + held
        if waited > _WAITED_SECONDS:
            self.longest_seconds = max(self.longest_seconds, seconds)
            if rows:
                last = self._row_seconds
                found = seconds / rows
                self._row_seconds = found if last is None else (last + found) / 2
        elif self._row_seconds is not None:
            seconds = min(seconds, rows * self._row_seconds)
        self.replay_seconds += seconds

    def is_due(self) -> bool:
        """Return whether the state is to be saved before the next element."""
        return self.replay_seconds >= max(MIN_REPLAY_SECONDS, self._cost.seconds / _MAX_SHARE)

    def restart(self) -> None:
        """Record that the state was saved, or that another attempt has to wait."""
        self.replay_seconds = 0.0


class StateSource(Protocol):
    """An iterator whose state can be saved; see `SavableIterator`.

    Attributes:
        fetched: number of elements returned so far.
        key: key of its states.
        problem: why TensorFlow cannot save its state, or "".
        inline: whether its maps run in the thread of the split.
    """

    fetched: int
    key: bytes
    problem: str
    inline: bool

    def save(self, max_bytes: int, timeout: float) -> bytes:
        """Return the state after the last element returned."""
        ...


class StateSaver:
    """Saves the state of one split between its elements.

    Args:
        source: iterator of the split.
        batch_rows: number of rows in an element for which the dataset was opened.
        cost: cost of a state of the dataset; updated.
        keep: called with the key, the row and the bytes of each state.
        clock: time in seconds.

    Attributes:
        is_paused: whether no state is saved now.
    """

    def __init__(
        self,
        source: StateSource,
        batch_rows: int,
        cost: SaveCost,
        keep: Callable[[bytes, int, bytes], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._batch_rows, self._cost = source, batch_rows, cost
        self._keep, self._clock = keep, clock
        self._schedule = SaveSchedule(cost)
        self.is_paused = False
        self._returned_at = clock()
        self._held = 0.0

    def before_element(self, taken: int, prefix: Prefix) -> bytes:
        """Return the state of the split if it is due, else b"".

        Args:
            taken: number of elements whose rows were recorded.
            prefix: rows of the split before the next element.

        Raises:
            UnavailableError: TensorFlow did not return in time.
        """
        self._held = self._clock() - self._returned_at
        # The iterator may be ahead of the rows: the first elements are used to measure their rate.
        source = self._source
        if self.is_paused or source.fetched != taken or not self._schedule.is_due():
            return b""
        self._schedule.restart()
        if self._cost.problem:
            return b""
        began = self._clock()
        try:
            data = self._save_iterator()
        except StateTimeoutError as error:
            self._give_up(error)
            raise UnavailableError(f"{error}. The split is opened again.") from error
        except StateError as error:
            self._give_up(error)
            return b""
        state = SavedState(source.key, prefix, self._batch_rows, data, source.inline)
        token = encode(state)
        self._keep(state.key, prefix.rows, token)
        self._cost.record(self._clock() - began, len(token))
        return token

    def add(self, rows: int, waited: float) -> None:
        """Record an element.

        Args:
            rows: number of its rows.
            waited: seconds until they were encoded.
        """
        self._schedule.add(rows, waited, self._held)
        self._returned_at = self._clock()

    def _save_iterator(self) -> bytes:
        timeout = _DEADLINE_SECONDS + _DEADLINE_ELEMENTS * self._schedule.longest_seconds
        if self._source.problem:
            raise StateError(self._source.problem)
        return self._source.save(MAX_STATE_BYTES, timeout)

    def _give_up(self, error: StateError) -> None:
        """Save no more states of the dataset, and log it once."""
        self._cost.problem = str(error)
        _log.warning("splits resume without saved states", cause=str(error))
