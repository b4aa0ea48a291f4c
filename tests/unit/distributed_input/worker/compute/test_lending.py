"""Permits are lent while CPUs are idle, and only then."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.worker.compute.lending import (
    _GAIN,
    _PAUSE_SECONDS,
    _TRIAL_SECONDS,
    _TRIAL_TASKS,
    CpuUse,
    Trial,
    cpu_use,
    lent_permits,
)

IDLE, BUSY, BETWEEN = CpuUse(0.1, 0.0), CpuUse(1.0, 0.0), CpuUse(0.8, 0.0)
LATE = CpuUse(0.5, 0.006)


def settled(
    cpus_of: Callable[[int], float], permits: int, streams: int, late_of: Callable[[int], float]
) -> list[int]:
    """Return the permits that are lent over time, if all streams always need a permit.

    Args:
        cpus_of: CPUs in use by a number of holders.
        permits: number of permits.
        streams: number of streams.
        late_of: seconds that a thread waits before it runs, by the number of holders.
    """
    lent, found = 0, []
    for _ in range(40):
        held = min(streams, permits + lent)
        use = CpuUse(cpus_of(held) / permits, late_of(held))
        lent = lent_permits(
            lent, permits=permits, held=held, waiting=streams - held, stuck=0, use=use
        )
        found.append(lent)
    return found


@pytest.mark.parametrize("permits", [1, 2, 16])
def test_streams_that_only_wait_all_get_a_permit(permits: int) -> None:
    found = settled(lambda _: 0.05, permits, 64, lambda _: 0.0)
    assert found[7:] == [64 - permits] * 33


@pytest.mark.parametrize("permits", [1, 2, 16])
def test_streams_that_compute_get_no_lent_permit(permits: int) -> None:
    assert not any(settled(lambda held: min(held, permits), permits, 64, lambda _: 0.0))


def test_threads_that_wait_for_the_interpreter_get_no_lent_permit() -> None:
    """They use one CPU of four."""
    assert not any(settled(lambda _: 1.0, 4, 64, lambda _: 0.005))


def test_streams_that_compute_half_of_the_time_get_enough_to_use_the_cpus() -> None:
    found = settled(lambda held: min(2.0, held / 4), 2, 64, lambda _: 0.0)
    assert max(found) <= 14
    assert min(found[10:]) >= 4


def test_permits_are_taken_back_when_streams_begin_to_compute() -> None:
    lent = 62
    for _ in range(7):
        lent = lent_permits(lent, permits=2, held=64, waiting=0, stuck=0, use=BUSY)
    assert lent == 0


@pytest.mark.parametrize("use", [IDLE, BUSY, BETWEEN, LATE])
def test_a_stuck_holder_is_replaced_whatever_the_cpus_do(use: CpuUse) -> None:
    assert lent_permits(0, permits=1, held=1, waiting=0, stuck=1, use=use) == 1
    assert lent_permits(0, permits=2, held=2, waiting=5, stuck=2, use=use) >= 2


def test_unused_permits_are_not_kept() -> None:
    lent = 32
    for _ in range(6):
        lent = lent_permits(lent, permits=2, held=1, waiting=0, stuck=0, use=IDLE)
    assert lent == 0


@given(
    st.integers(0, 100), st.integers(1, 8), st.integers(0, 50), st.integers(0, 9),
    st.sampled_from([IDLE, BUSY, BETWEEN, LATE]),
)  # fmt: skip
def test_no_more_permits_are_lent_than_threads_wait(
    lent: int, permits: int, waiting: int, stuck: int, use: CpuUse
) -> None:
    after = lent_permits(
        lent, permits=permits, held=permits + lent, waiting=waiting, stuck=stuck, use=use
    )
    assert after <= max(lent + waiting, stuck)


def test_the_use_is_measured_by_cpu_time_and_by_late_wakes() -> None:
    times = itertools.chain([0.0, 0.0, 0.05, 0.05, 0.16], itertools.repeat(0.16))
    cpu = itertools.chain([0.0, 0.025, 0.245], itertools.repeat(0.245))
    found = cpu_use(lambda: 2, lambda: next(times), lambda: next(cpu), lambda _: None)
    first, second = next(found), next(found)
    assert (first.share, first.late) == pytest.approx((0.25, 0.0))
    assert (second.share, second.late) == pytest.approx((1.0, 0.06))
    assert first.is_idle
    assert second.is_busy


TICK_SECONDS = 0.05


def lent_over_time(rate_of: Callable[[int], float], seconds: float, most: int = 16) -> list[int]:
    """Return the permits that are lent over time, if CPUs are idle and tasks always wait.

    Args:
        rate_of: tasks that end per second, by the number of lent permits.
        seconds: length of the test.
        most: number of permits that can be lent.
    """
    trial, lent, ended, found = Trial(), 0, 0.0, []
    for tick in range(round(seconds / TICK_SECONDS)):
        wanted = min(most, 2 * lent + 1)
        if wanted > lent:
            limit = trial.limit(lent, int(ended), tick * TICK_SECONDS)
            wanted = wanted if limit is None else min(wanted, limit)
        lent = wanted
        found.append(lent)
        ended += rate_of(lent) * TICK_SECONDS
    return found


@given(st.floats(200, 10_000), st.floats(1.1 * _GAIN, 2.0))
def test_permits_are_kept_while_tasks_end_more_often(rate: float, gain: float) -> None:
    """Each doubling of the tasks that run increases the rate."""
    found = lent_over_time(lambda lent: rate * gain ** math.log2(lent + 1), 4.0)
    assert found[-1] >= 15
    assert found == sorted(found)


@given(st.floats(200, 10_000), st.floats(0.5, 0.9 * _GAIN))
def test_permits_that_bring_nothing_are_taken_back_and_tried_again_after_a_pause(
    rate: float, gain: float
) -> None:
    found = lent_over_time(lambda lent: rate * (gain if lent else 1.0), 3 * _PAUSE_SECONDS)
    assert max(found) == 1
    changes = [at for at in range(1, len(found)) if found[at] > found[at - 1]]
    pauses = [TICK_SECONDS * (b - a) for a, b in itertools.pairwise(changes)]
    assert len(pauses) >= 1
    assert all(pause >= _PAUSE_SECONDS for pause in pauses)
    assert all(pause <= _PAUSE_SECONDS + 5 * _TRIAL_SECONDS for pause in pauses)
    lent = sum(found) * TICK_SECONDS
    assert lent <= len(changes) * 2 * _TRIAL_SECONDS


def test_a_trial_begins_again_after_a_gain_that_is_lost() -> None:
    """Four permits help, eight do not."""
    found = lent_over_time(lambda lent: 500.0 * min(4, lent + 1), 4.0)
    assert max(found) == 7
    assert found[-1] == 3


def test_tasks_that_take_long_are_not_held_back() -> None:
    """None of them ends during a trial, so there is no rate."""
    found = lent_over_time(lambda _: 0.0, 2.0)
    assert found[-1] == 16


def test_a_rate_is_not_measured_with_a_few_tasks() -> None:
    trial = Trial()
    assert trial.limit(0, 0, 0.0) == 0
    assert trial.limit(0, 1, _TRIAL_SECONDS) == 0
    assert trial.limit(0, _TRIAL_TASKS - 1, 9.9 * _TRIAL_SECONDS) == 0
    assert trial.limit(0, _TRIAL_TASKS - 1, 10 * _TRIAL_SECONDS) is None


def test_a_rate_is_measured_once_there_are_enough_tasks() -> None:
    trial = Trial()
    assert trial.limit(0, 5, 0.0) == 0
    assert trial.limit(0, 5 + _TRIAL_TASKS, 0.9 * _TRIAL_SECONDS) == 0
    assert trial.limit(0, 5 + _TRIAL_TASKS, _TRIAL_SECONDS) is None
    assert trial.rate == pytest.approx(_TRIAL_TASKS / _TRIAL_SECONDS)
