"""Permits are lent while CPUs are idle, and only then."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.worker.streams.lending import CpuUse, cpu_use, lent_permits

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
