"""Restarts after crashes, and their limits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.runner.processes.restart_policy import (
    CrashHistory,
    RestartPolicy,
    after_exit,
)

POLICY = RestartPolicy()


def steps(gaps: list[float], *, ready: bool = True, status: int = 1) -> list[float | str]:
    """Return the steps after crashes that are `gaps` seconds apart, up to the end of the run."""
    history, now, found = CrashHistory(), 0.0, []
    for gap in gaps:
        now += gap
        history, step = after_exit(history, now, status, ready, POLICY)
        found.append(step)
        if isinstance(step, str):
            break
    return found


def test_delays_double_up_to_a_limit() -> None:
    delays = steps([1.0] * 5)
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0]


def test_the_runner_gives_up_at_the_sixth_crash_within_a_minute() -> None:
    *_, last = steps([9.0] * 20)
    assert last == "it crashed 6 times within 60 s"


def test_a_minute_without_crashes_makes_delays_short_again() -> None:
    *_, last = steps([1.0, 1.0, 1.0, 61.0])
    assert last == 0.25


def test_the_runner_gives_up_after_three_starts_that_never_became_ready() -> None:
    # However long each takes: importing a framework may take most of a minute.
    *_, last = steps([100.0] * 20, ready=False)
    assert last == "it ended 3 times in a row before it was ready"


def test_an_invalid_configuration_is_final_only_at_the_first_start() -> None:
    _, first = after_exit(CrashHistory(), 0.0, 2, False, POLICY)
    assert isinstance(first, str)
    # Later, another process may have taken the port in the meantime.
    _, later = after_exit(CrashHistory(ever_ready=True), 0.0, 2, False, POLICY)
    assert isinstance(later, float)


@given(st.lists(st.floats(0, 1000), max_size=50), st.booleans())
def test_delays_stay_within_bounds_and_a_crash_loop_ends(gaps: list[float], ready: bool) -> None:
    found = steps(gaps, ready=ready)
    delays = [step for step in found if isinstance(step, float)]
    assert all(POLICY.first_delay <= delay <= POLICY.max_delay for delay in delays)
    if len(found) > POLICY.max_crashes and sum(gaps[: len(found)]) < POLICY.window:
        assert isinstance(found[-1], str)
