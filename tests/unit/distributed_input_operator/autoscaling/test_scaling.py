"""Laws of autoscaling: within bounds, up at once, down only after a window, and then still."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distributed_input_operator.autoscaling.rates import (
    PAUSE_SECONDS,
    Consumer,
    Measured,
    Sample,
    Window,
    Worker,
    measure,
)
from distributed_input_operator.autoscaling.scaling import (
    SHORT,
    SPARE,
    Bounds,
    Seen,
    State,
    decide,
    need,
    recommended,
)

bounds = st.builds(
    lambda low, more, window: Bounds(low, low + more, window),
    st.integers(1, 50),
    st.integers(0, 50),
    st.floats(0, 600),
)
states = st.builds(State, st.integers(0, 200))
needs = st.floats(0, 500)
useful = st.integers(0, 200)


def settle(state, limits, want, use, seconds=3600, tick=10.0):
    """Decide every `tick` seconds; all workers always start in time."""
    for number in range(int(seconds / tick)):
        seen = Seen(want, 1, use, state.desired)
        state = decide(state, limits, seen, number * tick).state
    return state


@given(states, bounds, needs | st.none(), useful, st.integers(0, 100))
def test_the_number_stays_within_bounds(state, limits, want, use, working):
    made = decide(state, limits, Seen(want, 1, use, working), 0.0).state.desired
    assert limits.least <= made <= limits.most


@given(states, bounds, needs, useful)
def test_a_steady_need_is_met_and_then_nothing_changes(state, limits, want, use):
    settled = settle(state, limits, want, use)
    cap = min(limits.most, use) if use else limits.most
    low, high = (
        min(max(math.ceil(want * part - 1e-9), limits.least), max(cap, limits.least))
        for part in (1 - SHORT, 1 + SPARE)
    )
    assert low <= settled.desired <= max(high, low, limits.least, min(1, cap))
    assert settle(settled, limits, want, use) == settled


@given(states, bounds, st.lists(needs, min_size=1, max_size=30))
def test_workers_go_only_to_the_most_that_a_whole_window_needed(state, limits, wants):
    assume(limits.window > 0)
    tick, state = limits.window / 5, decide(state, limits, Seen(), 0.0).state
    for number, want in enumerate(wants):
        before = state.desired
        state = decide(state, limits, Seen(want, 1, 0, before), number * tick).state
        if state.desired < before:
            assert number >= 5
            window = wants[number - 5 : number + 1]
            assert state.desired >= min(max(window), limits.most)


@given(bounds, needs)
def test_workers_that_start_are_counted_and_not_asked_for_again(limits, want):
    seen = Seen(want, 1, 0, limits.least)
    first = decide(State(limits.least), limits, seen, 0.0).state
    again = decide(first, limits, seen, 10.0).state
    assert again.desired == first.desired


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_noise_of_two_percent_flaps_nothing(count, seed):
    """It may end one or two workers above, and stays there."""
    chance, limits, state, numbers = random.Random(seed), Bounds(1, 100, 120), State(1), []
    for tick in range(720):
        seen = Seen(count * chance.uniform(0.98, 1.02), 1, 0, state.desired)
        state = decide(state, limits, seen, 10.0 * tick).state
        numbers.append(state.desired)
    assert len(set(numbers[12:])) <= 1 + count // 20
    assert count - 1 <= numbers[-1] <= count * 1.05 + 1


def test_the_step_up_is_at_most_four_times_what_works():
    limits = Bounds(1, 100, 300)
    assert decide(State(1), limits, Seen(100, 1, 0, 1), 0.0).state.desired == 8
    assert decide(State(10), limits, Seen(100, 1, 0, 10), 0.0).state.desired == 40


def test_the_most_that_was_needed_meanwhile_stays():
    limits, state = Bounds(1, 20, 30), State(10)
    for now, want in enumerate((4.5, 5.7, 5, 5)):
        state = decide(state, limits, Seen(want, 1, 0, 10), 10.0 * now).state
    assert state.desired == 6


def test_what_limits_is_told():
    limits = Bounds(1, 8, 300)
    assert decide(State(8), limits, Seen(20, 1, 0, 8), 0.0).reason == "MaxReplicas"
    capped = decide(State(4), limits, Seen(20, 1, 4, 4), 0.0)
    assert (capped.reason, capped.state.desired) == ("NoMoreUse", 4)
    assert "only 4 can work at once" in capped.message
    assert decide(State(4), limits, Seen(4, 1, 16, 4), 0.0).reason == ""


@pytest.mark.parametrize("useful", [0, 4])
def test_what_limits_is_told_once_however_the_need_moves(useful):
    limits = Bounds(1, 8, 300)
    told = {decide(State(8), limits, Seen(n, 1, useful, 8), 0.0).message for n in (11, 12, 40)}
    assert len(told) == 1


def test_paused_means_as_it_is():
    frozen = Bounds(1, 8, 0, paused=True)
    assert decide(State(5), frozen, Seen(1, 1, 0, 5), 0.0).state.desired == 5


def test_idle_inputs_go_to_zero_and_return_with_the_first_reader():
    limits, state = Bounds(2, 8, 0, idle=600), State(5)
    numbers = []
    for now in range(0, 700, 100):
        state = decide(state, limits, Seen(0.0, 0, 0, 5), float(now)).state
        numbers.append(state.desired)
    assert numbers == [2, 2, 2, 2, 2, 2, 0]
    silent = decide(state, limits, Seen(), 700.0).state
    assert silent.desired == 0, "a dispatcher that does not answer is no reader"
    woken = decide(silent, limits, Seen(None, 1), 710.0).state
    assert (woken.desired, woken.idle_since) == (8, None)


def test_nobody_goes_to_zero_on_the_word_of_a_dispatcher_that_is_silent_since():
    """The last thing that it said is that nobody reads; who came since then is not known."""
    limits = Bounds(2, 8, 0, idle=600)
    state = decide(State(5), limits, Seen(0.0, 0), 0.0).state
    silent = decide(state, limits, Seen(), 700.0).state
    assert silent.desired == 2
    assert decide(silent, limits, Seen(0.0, 0), 710.0).state.desired == 0


def test_the_silence_of_a_dispatcher_is_no_time_in_which_nobody_reads():
    limits = Bounds(2, 8, 0, idle=600)
    state = decide(State(5), limits, Seen(), 0.0).state
    assert decide(state, limits, Seen(0.0, 0), 700.0).state.desired == 2


def test_a_pause_of_autoscaling_is_no_time_in_which_fewer_would_have_done():
    limits = Bounds(1, 8, 120)
    state = decide(State(5), limits, Seen(1.0, 1, 0, 5), 0.0).state
    state = decide(state, replace(limits, paused=True), Seen(5.0, 1, 0, 5), 60.0).state
    assert decide(state, limits, Seen(1.0, 1, 0, 5), 1000.0).state.desired == 5


def test_who_reads_while_autoscaling_is_paused_has_read():
    limits = Bounds(1, 8, 120, idle=600)
    state = decide(State(5), limits, Seen(0.0, 0), 0.0).state
    state = decide(state, replace(limits, paused=True), Seen(5.0, 1, 0, 5), 900.0).state
    assert state.desired == 5
    assert decide(state, limits, Seen(0.0, 0), 1000.0).state.desired == 5


def test_without_a_ttl_the_least_stay():
    limits, state = Bounds(2, 8, 0), State(5)
    for now in range(0, 9000, 100):
        state = decide(state, limits, Seen(0.0, 0), float(now)).state
    assert state.desired == 2


def test_the_need_is_what_trainers_take_unstalled_over_what_a_worker_makes_while_busy():
    before = Sample(0.0, {"a": Consumer(wall=1.0)}, {"w": Worker("10.0.0.1:7071")})
    # In 10 s the trainer waited 7.5: 300 rows in 2.5 s are 120 a second. A turn makes 300 in 10 s.
    after = Sample(
        10.0,
        {"a": Consumer(rows=300, wait=7.5, wall=11.0, useful_workers=16)},
        {"w": Worker("10.0.0.1:7071", rows=300, busy=10.0, streams=3)},
    )
    measured = measure(before, after)
    assert (measured.demand, measured.busy_rate) == (120.0, 30.0)
    assert (measured.rows_per_second, measured.stall) == (30.0, 0.75)
    assert measured.streams == {"10.0.0.1": 3}
    assert recommended(measured, 1) == 4
    assert recommended(measured, 2) == 2


def test_what_began_anew_has_no_rate():
    before = Sample(0.0, {"a": Consumer(rows=500, wall=9.0)}, {"w": Worker(rows=900, busy=9.0)})
    after = Sample(10.0, {"a": Consumer(rows=5, wall=0.1)}, {"w": Worker(rows=9, busy=0.1)})
    measured = measure(before, after)
    assert measured.demand is None
    assert measured.busy_rate is None
    assert recommended(measured, 1) is None


def test_where_nobody_reads_nobody_is_needed_and_where_nothing_is_known_nothing_changes():
    assert recommended(Measured(consumers=0), 1) == 0
    assert recommended(None, 1) is None
    assert decide(State(5), Bounds(1, 8, 0), Seen(), 0.0).state.desired == 5


def sample(time, rows, wait=0.0, *, busy=None, trainers=1):
    """So many seconds after the start, one worker having made all rows in `busy` seconds."""
    one = Consumer(rows=int(rows / trainers), wait=wait, wall=time, batches=int(time))
    consumers = {str(number): one for number in range(trainers)}
    return Sample(time, consumers, {"w": Worker(rows=int(rows), busy=busy or time)})


def seen(samples):
    """What the window says after each sample."""
    window, found = Window(), []
    for one in samples:
        window = window.after(one)
        found.append(window.measured)
    return found


def test_a_change_of_the_load_is_seen_in_ten_seconds_and_noise_is_averaged_out():
    steady = [sample(10.0 * n, 1000 * n + 50 * (n % 2)) for n in range(10)]
    assert all(m.demand == pytest.approx(100, rel=0.06) for m in seen(steady)[1:])
    assert seen(steady)[-1].demand == pytest.approx(100, rel=0.01)
    # The trainer takes four times as much from here on.
    faster = [sample(90.0 + 10 * n, 9000 + 4000 * n) for n in range(1, 3)]
    assert [m.demand for m in seen([*steady, *faster])[-2:]] == pytest.approx([400, 400], rel=0.02)


def test_few_batches_tell_of_no_change():
    slow = [
        Sample(10.0 * n, {"a": Consumer(rows=1000 * n, wall=10.0 * n, batches=n)}, {})
        for n in range(5)
    ]
    burst = Sample(50.0, {"a": Consumer(rows=8000, wall=50.0, batches=6)}, {})
    assert seen([*slow, burst])[-1].demand == pytest.approx(160)


def test_another_trainer_counts_as_soon_as_it_has_a_rate():
    alone = [sample(10.0 * n, 1000 * n) for n in range(6)]
    both = [sample(10.0 * n, 2000 * n, trainers=2) for n in range(6, 9)]
    assert seen([*alone, *both])[-1].demand == pytest.approx(200)


def test_a_pause_of_the_trainer_is_no_measurement_until_it_lasts():
    work = [sample(10.0 * n, 1000 * n) for n in range(7)]
    still = [sample(60.0 + 10 * n, 6000, busy=60.0) for n in range(1, 60)]
    during = seen([*work, *still])[7:]
    assert [m.paused for m in during] == [True] * 59
    kept = [m for m in during if m.demand == pytest.approx(100)]
    assert len(kept) * 10 == pytest.approx(PAUSE_SECONDS, abs=10)
    needs = [need(m, 1) for m in during]
    assert needs[0] == pytest.approx(1)
    assert needs[-1] == 0, "workers that nobody has used for five minutes may go"
    assert recommended(during[-1], 1) == 1, "someone reads"


def test_trainers_that_have_not_begun_are_not_known_to_need_nothing():
    """They compile, for a minute: no row was taken, and none was waited for."""
    still = [Sample(10.0 * n, {"a": Consumer(wall=10.0 * n)}, {}) for n in range(7)]
    assert [need(m, 1) for m in seen(still)] == [None] * 7
