"""Laws of autoscaling: within bounds, up at once, down only after a window, and then still."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from distributed_input_operator.core.rates import Consumer, Measured, Sample, Worker, measure
from distributed_input_operator.core.scaling import Bounds, State, decide, recommended

bounds = st.builds(
    lambda low, more, window: Bounds(low, low + more, window),
    st.integers(1, 50),
    st.integers(0, 50),
    st.floats(0, 600),
)
states = st.builds(State, st.integers(0, 200))
wanted = st.integers(0, 500)
useful = st.integers(0, 200)


def settle(state, limits, want, use, seconds=3600, tick=10.0):
    """Decide every `tick` seconds; all workers always start in time."""
    for number in range(int(seconds / tick)):
        state = decide(state, limits, want, use, state.desired, number * tick).state
    return state


@given(states, bounds, wanted | st.none(), useful, st.integers(0, 100))
def test_the_number_stays_within_bounds(state, limits, want, use, working):
    made = decide(state, limits, want, use, working, 0.0).state.desired
    assert limits.least <= made <= limits.most


@given(states, bounds, wanted, useful)
def test_a_steady_need_is_met_and_then_nothing_changes(state, limits, want, use):
    settled = settle(state, limits, want, use)
    target = min(max(min(want, use) if use else want, limits.least), limits.most)
    assert abs(settled.desired - target) <= 0.1 * settled.desired
    assert settle(settled, limits, want, use) == settled


@given(states, bounds, st.lists(wanted, min_size=1, max_size=30))
def test_workers_go_only_to_the_most_that_a_whole_window_wanted(state, limits, wants):
    assume(limits.window > 0)
    tick, state = limits.window / 5, decide(state, limits, None, 0, 0, 0.0).state
    for number, want in enumerate(wants):
        before = state.desired
        state = decide(state, limits, want, 0, before, number * tick).state
        if state.desired < before:
            assert number >= 5
            window = wants[number - 5 : number + 1]
            assert state.desired >= min(max(window), limits.most)


@given(bounds, wanted)
def test_workers_that_start_are_counted_and_not_asked_for_again(limits, want):
    first = decide(State(limits.least), limits, want, 0, limits.least, 0.0).state
    again = decide(first, limits, want, 0, limits.least, 10.0).state
    assert again.desired == first.desired


def test_the_step_up_is_at_most_twice_what_works():
    limits = Bounds(1, 100, 300)
    assert decide(State(1), limits, 100, 0, 1, 0.0).state.desired == 4
    assert decide(State(10), limits, 100, 0, 10, 0.0).state.desired == 20


def test_the_most_that_was_wanted_meanwhile_stays():
    limits, state = Bounds(1, 20, 30), State(10)
    for now, want in enumerate((2, 6, 3, 2)):
        state = decide(state, limits, want, 0, 10, 10.0 * now).state
    assert state.desired == 6


def test_what_limits_is_told():
    limits = Bounds(1, 8, 300)
    assert decide(State(8), limits, 20, 0, 8, 0.0).reason == "MaxReplicas"
    capped = decide(State(4), limits, 20, 4, 4, 0.0)
    assert (capped.reason, capped.state.desired) == ("NoMoreUse", 4)
    assert "only 4 can work at once" in capped.message
    assert decide(State(4), limits, 4, 16, 4, 0.0).reason == ""


def test_paused_means_as_it_is():
    frozen = Bounds(1, 8, 0, paused=True)
    assert decide(State(5), frozen, 1, 0, 5, 0.0).state.desired == 5


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
    assert decide(State(5), Bounds(1, 8, 0), None, 0, 5, 0.0).state.desired == 5
