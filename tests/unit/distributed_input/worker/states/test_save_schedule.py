"""When a split saves its state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.worker.states.save_schedule import (
    MIN_REPLAY_SECONDS,
    SaveCost,
    SaveSchedule,
)

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
