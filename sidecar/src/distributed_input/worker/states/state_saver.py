"""Saves the state of a split that runs, when its schedule says so."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import UnavailableError
from distributed_input.rows.prefix import Prefix
from distributed_input.runtime import logs
from distributed_input.worker.states.save_schedule import SaveCost, SaveSchedule
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


class StateSource(Protocol):
    """An iterator whose state can be saved; see `SavableIterator`.

    Attributes:
        fetched: number of elements returned so far.
        has_skipped: whether it was restored by skipping rows.
        key: key of its states.
        problem: why TensorFlow cannot save its state, or "".
        skipped_rows: of what the number of skipped rows must be a multiple; 0: it cannot skip rows.
    """

    fetched: int
    has_skipped: bool
    key: bytes
    problem: str
    skipped_rows: int

    def save(self, max_bytes: int, timeout: float) -> bytes:
        """Return the state after the last element returned."""
        ...


class StateSaver:
    """Saves the state of one split between its elements.

    Args:
        source: iterator of the split.
        start: rows of the split before its first element.
        batch_rows: number of rows in an element for which the dataset was opened.
        cost: cost of a state of the dataset; updated.
        keep: called with the key, the row and the bytes of each state.
        clock: time in seconds.
    """

    def __init__(
        self,
        source: StateSource,
        start: Prefix,
        batch_rows: int,
        cost: SaveCost,
        keep: Callable[[bytes, int, bytes], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._batch_rows, self._cost = source, batch_rows, cost
        self._keep, self._clock = keep, clock
        self._prefix = start
        self._schedule = SaveSchedule(cost)
        self._token = b""
        self._is_paused = False
        self._returned_at = clock()
        self._held = 0.0

    def pause(self) -> None:
        """Save no state until `resume`."""
        self._is_paused = True

    def resume(self) -> None:
        """Save states again."""
        self._is_paused = False

    def take(self) -> bytes:
        """Return the last state if it is new, else b""."""
        token, self._token = self._token, b""
        return token

    def before_element(self, taken: int) -> None:
        """Save the state if it is due. Call it before the next element is requested.

        Args:
            taken: number of elements whose rows were recorded.

        Raises:
            UnavailableError: TensorFlow did not return in time.
        """
        self._held = self._clock() - self._returned_at
        # The iterator may be ahead of the rows: the first elements are used to measure their rate.
        if self._is_paused or self._source.fetched != taken or not self._schedule.is_due():
            return
        if self._skips_rows and not self._can_skip:
            return  # still due at the next element
        self._schedule.restart()
        if self._cost.problem:
            return
        try:
            self._save()
        except StateTimeoutError as error:
            self._give_up(error)
            raise UnavailableError(f"{error}. The split is opened again.") from error
        except StateError as error:
            self._give_up(error)

    def add(self, digests: NDArray[np.uint64], waited: float) -> None:
        """Record the rows of an element.

        Args:
            digests: uint64, one for each row.
            waited: seconds until the rows of the element were encoded.
        """
        self._prefix = self._prefix.extend(digests)
        self._schedule.add(len(digests), waited, self._held)
        self._returned_at = self._clock()

    @property
    def _skips_rows(self) -> bool:
        """Return whether a state of this split is only the number of its rows."""
        return self._cost.skips_rows or self._source.has_skipped

    @property
    def _can_skip(self) -> bool:
        """Return whether the split can continue at this row without those before it.

        Other splits of the dataset may do so although this one cannot.
        """
        multiple = self._source.skipped_rows
        return multiple > 0 and self._prefix.rows % multiple == 0

    def _save(self) -> None:
        began = self._clock()
        data = b"" if self._skips_rows else self._save_iterator()
        if self._skips_rows and not self._can_skip:
            return
        state = SavedState(self._source.key, self._prefix, self._batch_rows, data)
        self._token = encode(state)
        self._keep(state.key, self._prefix.rows, self._token)
        self._cost.record(self._clock() - began, len(self._token))

    def _save_iterator(self) -> bytes:
        """Return the state of the iterator. b"": the rows before it can be skipped instead."""
        timeout = _DEADLINE_SECONDS + _DEADLINE_ELEMENTS * self._schedule.longest_seconds
        try:
            if self._source.problem:
                raise StateError(self._source.problem)
            return self._source.save(MAX_STATE_BYTES, timeout)
        except StateTimeoutError:
            raise
        except StateError as error:
            if not self._source.skipped_rows:
                raise
            self._cost.skips_rows = True
            _log.info("splits resume by skipping rows: their state is not saved", cause=str(error))
            return b""

    def _give_up(self, error: StateError) -> None:
        """Save no more states of the dataset, and log it once."""
        self._cost.problem = str(error)
        _log.warning("splits resume by a replay: their state cannot be saved", cause=str(error))
