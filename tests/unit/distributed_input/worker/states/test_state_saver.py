"""Saving the state of a split between its elements."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.rows.prefix import Prefix
from distributed_input.worker.states.save_schedule import SaveCost
from distributed_input.worker.states.saved_state import (
    KEY_BYTES,
    SavedState,
    StateError,
    StateTimeoutError,
    decode,
)
from distributed_input.worker.states.state_saver import MAX_STATE_BYTES, StateSaver

KEY = b"k" * KEY_BYTES
ROWS = np.array([3, 5], np.uint64)  # digests of an element


@dataclass
class Source:
    """An iterator whose state is the number of elements that it returned."""

    fetched: int = 0
    problem: str = ""
    error: StateError | None = None
    key: bytes = KEY
    saves: int = 0
    timeout: float = 0.0
    skipped_rows: int = 0
    has_skipped: bool = False

    def save(self, max_bytes: int, timeout: float) -> bytes:
        assert max_bytes == MAX_STATE_BYTES
        self.timeout = timeout
        self.saves += 1
        if self.error is not None:
            raise self.error
        return b"%d" % self.fetched


@dataclass
class Split:
    """A split with a saver and a clock."""

    source: Source = field(default_factory=Source)
    cost: SaveCost = field(default_factory=SaveCost)
    start: Prefix = field(default_factory=Prefix)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.kept: list[tuple[bytes, int, bytes]] = []
        keep = self._keep
        self.saver = StateSaver(self.source, self.start, 7, self.cost, keep, lambda: self.now)
        self.taken = 0

    def _keep(self, key: bytes, row: int, token: bytes) -> None:
        self.kept.append((key, row, token))

    def element(self, seconds: float = 1.0) -> bytes:
        """Produce an element. Return the state that is saved before the next one, or b""."""
        self.source.fetched += 1
        self.now += seconds
        self.saver.add(ROWS, seconds)
        self.taken += 1
        self.saver.before_element(self.taken)
        return self.saver.take()


def test_a_state_has_the_rows_before_it() -> None:
    split = Split(start=Prefix(10, 100))
    assert decode(split.element()) == SavedState(KEY, Prefix(12, 108), 7, b"1")
    assert decode(split.element()) == SavedState(KEY, Prefix(14, 116), 7, b"2")
    assert [(key, row) for key, row, _ in split.kept] == [(KEY, 12), (KEY, 14)]


def test_a_state_is_taken_once() -> None:
    split = Split()
    assert split.element()
    assert split.saver.take() == b""


def test_cheap_elements_are_not_saved() -> None:
    split = Split()
    assert not any(split.element(0.01) for _ in range(49))
    assert split.element(0.02)


def test_an_iterator_that_is_ahead_of_the_rows_is_not_saved() -> None:
    split = Split()
    split.source.fetched = 1
    assert split.element() == b""
    split.source.fetched -= 1
    assert split.element()


def test_a_paused_saver_saves_nothing_and_counts_the_rows() -> None:
    split = Split()
    split.saver.pause()
    assert split.element() == b""
    split.saver.resume()
    assert decode(split.element()).prefix.rows == 4


def test_a_dataset_without_a_state_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    cost = SaveCost()
    for _ in range(2):
        split = Split(Source(problem="PyFunc in read"), cost)
        assert not any(split.element() for _ in range(3))
        assert split.source.saves == 0
    assert cost.problem == "PyFunc in read"
    assert caplog.text.count("splits resume by a replay") == 1


@pytest.mark.parametrize("source", [Source(problem="PyFunc"), Source(error=StateError("large"))])
def test_the_rows_of_a_dataset_without_a_state_are_skipped(source: Source) -> None:
    source.skipped_rows = 4
    split = Split(source)
    states = [split.element() for _ in range(6)]
    assert [decode(state).prefix.rows for state in states if state] == [4, 8, 12]
    assert {decode(state).data for state in states if state} == {b""}
    assert split.cost.skips_rows
    assert not split.cost.problem
    assert source.saves == (not source.problem)


def test_a_split_that_cannot_skip_saves_nothing_if_its_dataset_skips_rows() -> None:
    cost = SaveCost()
    assert Split(Source(problem="PyFunc", skipped_rows=2), cost).element()
    other = Split(Source(problem="PyFunc"), cost)
    assert not any(other.element() for _ in range(3))
    assert not cost.problem


def test_a_split_that_has_skipped_rows_skips_them_again_and_others_do_not() -> None:
    split = Split(Source(skipped_rows=4, has_skipped=True))
    states = [split.element() for _ in range(4)]
    assert [(decode(each).prefix.rows, decode(each).data) for each in states if each] == [
        (4, b""),
        (8, b""),
    ]
    assert not split.cost.skips_rows
    assert decode(Split(Source(skipped_rows=4), split.cost).element()).data == b"1"


def test_slow_elements_extend_the_deadline() -> None:
    split = Split()
    split.element(1.0)
    first = split.source.timeout
    split.element(100.0)
    assert first < 100 < split.source.timeout


def test_a_failed_save_is_not_repeated() -> None:
    split = Split(Source(error=StateError("too large")))
    assert not any(split.element() for _ in range(5))
    assert split.source.saves == 1
    assert split.cost.problem == "too large"


def test_a_save_that_does_not_return_ends_the_stream_and_is_not_repeated() -> None:
    cost = SaveCost()
    split = Split(Source(error=StateTimeoutError("no answer")), cost)
    with pytest.raises(UnavailableError, match="no answer"):
        split.element()
    assert not any(Split(Source(), cost).element() for _ in range(3))
