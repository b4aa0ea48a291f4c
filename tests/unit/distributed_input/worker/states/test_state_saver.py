"""Saving the state of a split between its elements."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import UnavailableError
from distributed_input.rows.prefix import Prefix
from distributed_input.worker.states.saved_state import (
    KEY_BYTES,
    SavedState,
    StateError,
    StateTimeoutError,
    decode,
)
from distributed_input.worker.states.state_saver import (
    MAX_STATE_BYTES,
    MIN_REPLAY_SECONDS,
    SaveCost,
    SaveSchedule,
    StateSaver,
)

KEY = b"k" * KEY_BYTES
ROWS = np.array([3, 5], np.uint64)  # digests of an element


@dataclass
class Source:
    """An iterator whose state is the number of elements that it returned."""

    fetched: int = 0
    problem: str = ""
    inline: bool = False
    error: StateError | None = None
    key: bytes = KEY
    saves: int = 0
    timeout: float = 0.0

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
        self.saver = StateSaver(self.source, 7, self.cost, keep, lambda: self.now)
        self.prefix = self.start
        self.taken = 0

    def _keep(self, key: bytes, row: int, token: bytes) -> None:
        self.kept.append((key, row, token))

    def element(self, seconds: float = 1.0) -> bytes:
        """Produce an element. Return the state that is saved before the next one, or b""."""
        self.source.fetched += 1
        self.now += seconds
        self.saver.add(len(ROWS), seconds)
        self.prefix = self.prefix.extend(ROWS)
        self.taken += 1
        return self.saver.before_element(self.taken, self.prefix)


def test_a_state_has_the_rows_before_it() -> None:
    split = Split(start=Prefix(10, 100))
    assert decode(split.element()) == SavedState(KEY, Prefix(12, 108), 7, b"1")
    assert decode(split.element()) == SavedState(KEY, Prefix(14, 116), 7, b"2")
    assert [(key, row) for key, row, _ in split.kept] == [(KEY, 12), (KEY, 14)]


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
    split.saver.is_paused = True
    assert split.element() == b""
    split.saver.is_paused = False
    assert decode(split.element()).prefix.rows == 4


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_dataset_without_a_state_is_reported_once(
    caplog: pytest.LogCaptureFixture, is_refused: bool
) -> None:
    cost = SaveCost()
    problem, error = "PyFunc in read", StateError("it is large")
    for _ in range(2):
        source = Source(error=error) if is_refused else Source(problem=problem)
        assert not any(Split(source, cost).element() for _ in range(3))
        assert source.saves <= is_refused
    assert cost.problem == (str(error) if is_refused else problem)
    assert caplog.text.count("splits resume without saved states") == 1


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


_seconds = st.floats(0, 2, allow_nan=False)


def test_nothing_is_saved_while_a_replay_is_cheap() -> None:
    schedule = SaveSchedule(SaveCost())
    for _ in range(40):
        schedule.add(1, waited=MIN_REPLAY_SECONDS / 41, held=0.0)
    assert not schedule.is_due()
    schedule.add(1, waited=MIN_REPLAY_SECONDS / 10, held=0.0)
    assert schedule.is_due()
    schedule.restart()
    assert not schedule.is_due()


@given(st.lists(st.tuples(st.integers(0, 64), _seconds, _seconds)), _seconds)
def test_saving_takes_at_most_a_twentieth_of_the_time(
    elements: list[tuple[int, float, float]], save_seconds: float
) -> None:
    """The first state of a dataset is an exception, because its cost is not known before."""
    cost = SaveCost()
    cost.record(save_seconds, nbytes=0)
    schedule, spent, elapsed = SaveSchedule(cost), 0.0, 0.0
    for rows, waited, held in elements:
        schedule.add(rows, waited, held)
        elapsed += waited + held
        if schedule.is_due():
            spent += save_seconds
            schedule.restart()
    assert spent <= 0.05 * elapsed + 1e-6


def test_a_large_state_is_saved_less_often() -> None:
    small, large = SaveCost(), SaveCost()
    small.record(0.001, 1 << 10)
    large.record(0.001, 4 << 20)
    schedules = SaveSchedule(small), SaveSchedule(large)
    for schedule in schedules:
        schedule.add(1, waited=1.0, held=0.0)
    assert [schedule.is_due() for schedule in schedules] == [True, False]


@pytest.mark.parametrize(("held", "seconds"), [(0.0, 0.1), (0.06, 0.1), (0.099, 0.1)])
def test_the_time_to_produce_an_element_is_measured_beside_its_consumer(
    held: float, seconds: float
) -> None:
    """TensorFlow begins the next element when the one before it is returned."""
    schedule = SaveSchedule(SaveCost())
    schedule.add(10, waited=seconds - held + 0.002, held=held - 0.002)
    assert schedule.replay_seconds == pytest.approx(seconds)


def test_the_time_of_a_slow_consumer_does_not_count() -> None:
    schedule = SaveSchedule(SaveCost())
    schedule.add(10, waited=0.02, held=0.0)
    for _ in range(1000):
        schedule.add(10, waited=0.0, held=5.0)
    assert schedule.replay_seconds == pytest.approx(1001 * 0.02)
