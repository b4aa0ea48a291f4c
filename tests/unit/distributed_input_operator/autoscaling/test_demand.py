"""The number of workers that trainers could keep busy."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.autoscaling.demand import (
    SPARE_CAPACITY,
    STALL_TOLERANCE,
    needed_workers,
    recommended_workers,
    useful_workers,
    whole_workers,
)
from distributed_input_operator.autoscaling.rates import Measurement


def test_without_consumers_no_workers_are_needed():
    assert recommended_workers(Measurement(consumers=0), 1) == 0
    assert needed_workers(Measurement(consumers=0, demand=100, busy_rate=10), 1) == 0


def test_without_a_measurement_the_need_is_unknown():
    assert needed_workers(None, 1) is None
    assert recommended_workers(None, 1) is None


def test_parallel_workers_are_needed_in_smaller_numbers():
    reading = Measurement(consumers=1, demand=1200, busy_rate=100)
    assert [needed_workers(reading, parallelism) for parallelism in (1, 4)] == [12, 3]


@pytest.mark.parametrize(("exact", "margin", "workers"), [(0, 0.5, 0), (0.01, 0, 1), (2, 0.1, 3)])
def test_workers_are_rounded_up(exact, margin, workers):
    assert whole_workers(exact, margin) == workers


def test_a_tolerable_stall_needs_no_more_workers():
    assert whole_workers(4 * (1 + STALL_TOLERANCE), -STALL_TOLERANCE) == 4


def test_own_workers_that_suffice_need_no_worker_pods():
    reading = Measurement(consumers=2, demand=100, busy_rate=10, local_rate=100, local_workers=2)
    assert needed_workers(reading, 1) == 0
    assert recommended_workers(reading, 1) == 0
    assert whole_workers(0.0, SPARE_CAPACITY) == 0


def test_a_shortage_of_own_workers_within_the_tolerated_stall_needs_no_worker_pod():
    for local, needed in ((100 * (1 - STALL_TOLERANCE), 0.0), (90.0, 1.0)):
        reading = Measurement(consumers=1, demand=100, busy_rate=10, local_rate=local)
        assert needed_workers(reading, 1) == pytest.approx(needed)


@given(st.floats(1, 1e5), st.floats(0, 1), st.floats(0, 1), st.floats(1, 1e3))
def test_fewer_rows_from_own_workers_never_need_fewer_worker_pods(demand, more, less, rate):
    def needed(share: float) -> float:
        found = Measurement(consumers=1, demand=demand, busy_rate=rate, local_rate=share * demand)
        exact = needed_workers(found, 2)
        assert exact is not None
        return exact

    low, high = sorted((more, less))
    assert needed(high) <= needed(low) <= needed(0.0)


@given(st.floats(1, 1e5), st.floats(0, 1), st.floats(1, 1e3), st.integers(1, 512))
def test_own_workers_change_nothing_in_whether_all_streams_are_used(demand, share, rate, streams):
    """The need exceeds the useful number with own workers exactly if it does without them."""
    alone = Measurement(consumers=1, demand=demand, busy_rate=rate, useful_workers=streams)
    beside = replace(alone, local_rate=share * demand)
    exact, remaining = needed_workers(alone, 1), needed_workers(beside, 1)
    assert exact is not None
    assert remaining is not None
    assert useful_workers(alone) == streams
    assert 1 <= useful_workers(beside) <= streams
    if exact <= streams:
        assert remaining <= useful_workers(beside) * (1 + 1e-9)


def test_each_consumer_gets_at_most_one_worker_pod_until_its_rate_is_known():
    busy = Measurement(
        consumers=3,
        demand=100,
        busy_rate=1,
        local_rate=10,
        local_workers=3,
        busy_rate_is_local=True,
    )
    assert needed_workers(busy, 1) == 3
    assert needed_workers(replace(busy, busy_rate_is_local=False), 1) == 90
    assert needed_workers(replace(busy, busy_rate=90.0), 1) == 1


def test_without_a_measurement_the_useful_number_is_unknown():
    assert useful_workers(None) == 0
    assert useful_workers(Measurement(demand=10.0, local_rate=5.0)) == 0


def test_a_demand_close_to_zero_does_not_overflow():
    measurement = Measurement(consumers=1, demand=1e-308, local_rate=2.0, useful_workers=4)
    assert useful_workers(measurement) == 1
