"""When a part is restarted, when it is given up, and how trainers are told to end."""

from __future__ import annotations

import signal

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.runner.processes.restart_policy import (
    CrashHistory,
    GiveUp,
    Restart,
    RestartPolicy,
    Termination,
    after_exit,
)

LIMITS = RestartPolicy()


def steps(gaps: list[float], *, ready: bool = True, status: int = 1) -> list[Restart | GiveUp]:
    """What follows each of several crashes, `gaps` seconds apart, until one is the last."""
    history, now, found = CrashHistory(), 0.0, []
    for gap in gaps:
        now += gap
        history, step = after_exit(history, now, status, ready, LIMITS)
        found.append(step)
        if isinstance(step, GiveUp):
            break
    return found


def test_delays_double_up_to_a_limit() -> None:
    delays = [step.delay for step in steps([1.0] * 5) if isinstance(step, Restart)]
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0]


def test_the_sixth_crash_within_a_minute_is_the_last() -> None:
    *_, last = steps([9.0] * 20)
    assert last == GiveUp("it crashed 6 times within 60 s")


def test_a_quiet_minute_makes_delays_short_again() -> None:
    *_, last = steps([1.0, 1.0, 1.0, 61.0])
    assert last == Restart(0.25)


def test_three_lives_that_were_never_ready_are_enough() -> None:
    # However long each takes: importing a framework may take most of a minute.
    *_, last = steps([100.0] * 20, ready=False)
    assert last == GiveUp("it ended 3 times in a row before it was ready")


def test_a_refused_configuration_is_final_at_the_first_start_only() -> None:
    _, first = after_exit(CrashHistory(), 0.0, 2, False, LIMITS)
    assert isinstance(first, GiveUp)
    # Later it may mean that somebody else has taken the port meanwhile.
    _, later = after_exit(CrashHistory(ever_ready=True), 0.0, 2, False, LIMITS)
    assert isinstance(later, Restart)


@given(st.lists(st.floats(0, 1000), max_size=50), st.booleans())
def test_delays_stay_in_bounds_and_a_loop_always_ends(gaps: list[float], ready: bool) -> None:
    found = steps(gaps, ready=ready)
    delays = [step.delay for step in found if isinstance(step, Restart)]
    assert all(LIMITS.first_delay <= delay <= LIMITS.longest_delay for delay in delays)
    if len(found) > LIMITS.crashes and sum(gaps[: len(found)]) < LIMITS.within:
        assert isinstance(found[-1], GiveUp)


def due(ending: Termination, now: float) -> int:
    return policy.signal_due(ending, now, grace=30.0)


def test_an_interrupt_becomes_a_sigterm_and_then_a_sigkill() -> None:
    ending = Termination(signal.SIGINT, since=100.0)
    assert due(ending, 100.0) == signal.SIGINT
    assert due(ending, 129.9) == signal.SIGINT
    assert due(ending, 130.0) == signal.SIGTERM
    assert due(ending, 140.0) == signal.SIGKILL


def test_a_sigterm_becomes_a_sigkill() -> None:
    ending = Termination(signal.SIGTERM, since=100.0)
    assert due(ending, 129.9) == signal.SIGTERM
    assert due(ending, 130.0) == signal.SIGKILL


def test_urging_hurries() -> None:
    ending = policy.urged(Termination(signal.SIGINT, since=100.0), 101.0)
    assert due(ending, 101.0) == signal.SIGTERM
    assert due(ending, 104.0) == signal.SIGKILL
    assert due(policy.urged(ending, 101.5), 101.5) == signal.SIGKILL
