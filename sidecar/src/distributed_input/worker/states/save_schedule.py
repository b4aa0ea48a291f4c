"""The times at which the state of a split is saved. No threads, no clock.

A state saves the time of a replay, and costs time and memory to save. So a split saves its state
when a replay from the last state would take much longer than a save. The seconds of a replay are
measured on the rows as they are produced.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        skips_rows: whether a state is only the number of its rows.
    """

    seconds: float = 0.0
    problem: str = ""
    skips_rows: bool = False

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
