"""The clock does not count time in which the process did not run."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.dispatcher.clock import TICK_SECONDS, RunningClock


def test_the_clock_does_not_count_stops():
    now = 100.0
    clock = RunningClock(lambda: now)
    start = clock.now()
    for _ in range(20):
        now += TICK_SECONDS
        clock.now()
    assert clock.now() - start == 20 * TICK_SECONDS
    before = clock.now()
    now += 60.0
    assert clock.now() - before == TICK_SECONDS
    now += TICK_SECONDS
    assert clock.now() - before == 2 * TICK_SECONDS


@given(st.lists(st.floats(0, 100)))
def test_the_clock_never_decreases_or_runs_ahead(steps):
    now = 0.0
    clock = RunningClock(lambda: now)
    last = clock.now()
    for step in steps:
        now += step
        seen = clock.now()
        assert last <= seen + 1e-9
        assert seen <= now + 1e-9
        last = seen
