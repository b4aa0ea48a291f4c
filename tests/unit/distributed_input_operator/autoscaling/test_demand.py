"""The number of workers that trainers could keep busy."""

from __future__ import annotations

import pytest

from distributed_input_operator.autoscaling.demand import (
    STALL_TOLERANCE,
    needed_workers,
    recommended_workers,
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
