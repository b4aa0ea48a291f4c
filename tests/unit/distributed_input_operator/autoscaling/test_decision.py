"""Laws of autoscaling: within bounds, up at once, down only after a window, and then still."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distributed_input.api.resource.sections.workers import AutoscalingSpec
from distributed_input_operator.autoscaling.decision import (
    LOCAL_START_SECONDS,
    SPARE_CAPACITY,
    STALL_TOLERANCE,
    AutoscalingState,
    Observation,
    decide,
    needed_workers,
    recommended_workers,
    useful_workers,
    whole_workers,
)
from distributed_input_operator.autoscaling.rates import Measurement


def within(
    low: int, high: int, window: float, *, paused: bool = False, idle_ttl: int | None = None
) -> AutoscalingSpec:
    return AutoscalingSpec.model_construct(
        min_replicas=low,
        max_replicas=high,
        stabilization_window_seconds=window,
        paused=paused,
        idle_ttl_seconds=idle_ttl,
    )


bounds = st.builds(
    lambda low, more, window: within(low, low + more, window),
    st.integers(1, 50),
    st.integers(0, 50),
    st.floats(0, 600),
)
states = st.builds(AutoscalingState, st.integers(0, 200))
needs = st.floats(0, 500)
useful = st.integers(0, 200)


def settle(state, limits, need, useful, seconds=3600, tick=10.0):
    """Decide every `tick` seconds. All workers always start in time."""
    for number in range(int(seconds / tick)):
        observed = Observation(need, 1, useful, state.desired)
        state = decide(state, limits, observed, number * tick).state
    return state


@given(states, bounds, needs | st.none(), useful, st.integers(0, 100))
def test_the_number_stays_within_bounds(state, limits, need, useful, ready):
    desired = decide(state, limits, Observation(need, 1, useful, ready), 0.0).state.desired
    assert limits.min_replicas <= desired <= limits.max_replicas


@given(states, bounds, needs, useful)
def test_a_steady_need_is_met_and_then_nothing_changes(state, limits, need, useful):
    settled = settle(state, limits, need, useful)
    cap = min(limits.max_replicas, useful) if useful else limits.max_replicas
    low, high = (
        min(max(math.ceil(need * part - 1e-9), limits.min_replicas), max(cap, limits.min_replicas))
        for part in (1 - STALL_TOLERANCE, 1 + SPARE_CAPACITY)
    )
    assert low <= settled.desired <= max(high, low, limits.min_replicas, min(1, cap))
    assert settle(settled, limits, need, useful) == settled


@given(states, bounds, st.lists(needs, min_size=1, max_size=30))
def test_workers_fall_only_to_the_maximum_that_a_whole_window_needed(state, limits, wanted):
    assume(limits.stabilization_window_seconds > 0)
    tick, state = (
        limits.stabilization_window_seconds / 5,
        decide(state, limits, Observation(), 0.0).state,
    )
    for number, need in enumerate(wanted):
        before = state.desired
        state = decide(state, limits, Observation(need, 1, 0, before), number * tick).state
        if state.desired < before:
            assert number >= 5
            window = wanted[number - 5 : number + 1]
            assert state.desired >= min(max(window), limits.max_replicas)


@given(
    bounds,
    st.lists(needs, min_size=1, max_size=20),
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1),
)
def test_the_number_falls_when_fewer_were_needed_for_two_windows(limits, earlier, later):
    """Whatever the need does below its new maximum, and however often another operator leads."""
    assume(limits.stabilization_window_seconds > 1)
    tick, state, now = limits.stabilization_window_seconds / 5, AutoscalingState(100), 0.0
    for need in earlier:
        now += tick
        state = decide(state, limits, Observation(need, 1, 0, state.desired), now).state
    most = min(earlier) / 2
    for number in range(12):
        now += tick
        part, restarts = later[number % len(later)]
        if restarts:  # The status does not have the rest.
            state = AutoscalingState(state.desired, state.fewer_since, state.fewer)
        need = most * part
        state = decide(state, limits, Observation(need, 1, 0, state.desired), now).state
    highest = max(limits.min_replicas, math.ceil(most * (1 + SPARE_CAPACITY)))
    assert state.desired <= min(highest, limits.max_replicas) or most == 0


def test_a_need_that_alternates_does_not_keep_workers_that_it_never_needs():
    state, limits = AutoscalingState(20), within(1, 30, 120)
    for number in range(26):
        observed = Observation((9.5, 4.0)[number % 2], 1, 0, state.desired)
        state = decide(state, limits, observed, 10.0 * number).state
    assert state.desired == 10


@given(bounds, needs)
def test_workers_that_are_starting_are_not_requested_again(limits, need):
    observed = Observation(need, 1, 0, limits.min_replicas)
    first = decide(AutoscalingState(limits.min_replicas), limits, observed, 0.0).state
    again = decide(first, limits, observed, 10.0).state
    assert again.desired == first.desired


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_noise_of_two_percent_does_not_make_the_number_flap(count, seed):
    """The number may end one or two workers too high, and then stays."""
    chance, limits = random.Random(seed), within(1, 100, 120)
    state, numbers = AutoscalingState(1), []
    for tick in range(720):
        observed = Observation(count * chance.uniform(0.98, 1.02), 1, 0, state.desired)
        state = decide(state, limits, observed, 10.0 * tick).state
        numbers.append(state.desired)
    assert len(set(numbers[12:])) <= 1 + count // 20
    assert count - 1 <= numbers[-1] <= count * 1.05 + 1


def test_a_step_up_is_at_most_four_times_the_ready_workers():
    limits = within(1, 100, 300)

    def step(desired):
        observed = Observation(100, 1, 0, desired)
        return decide(AutoscalingState(desired), limits, observed, 0.0).state.desired

    assert (step(1), step(10)) == (8, 40)


def test_the_maximum_that_was_needed_in_the_window_stays():
    limits, state = within(1, 20, 30), AutoscalingState(10)
    for now, need in enumerate((4.5, 5.7, 5, 5)):
        state = decide(state, limits, Observation(need, 1, 0, 10), 10.0 * now).state
    assert state.desired == 6


def test_the_limit_is_reported():
    limits = within(1, 8, 300)
    most = decide(AutoscalingState(8), limits, Observation(20, 1, 0, 8), 0.0)
    assert most.reason == "MaxReplicas"
    capped = decide(AutoscalingState(4), limits, Observation(20, 1, 4, 4), 0.0)
    assert (capped.reason, capped.state.desired) == ("NoMoreUse", 4)
    assert "only 4 can work at the same time: raise spec.partitions" in capped.message
    named = Observation(20, 1, 4, 4, "the dataset has 4 splits")
    message = decide(AutoscalingState(4), limits, named, 0.0).message
    assert message.endswith("only 4 can work at the same time: the dataset has 4 splits")
    assert decide(AutoscalingState(4), limits, Observation(4, 1, 16, 4), 0.0).reason == ""


@pytest.mark.parametrize("useful", [0, 4])
def test_the_message_of_a_limit_does_not_change_with_the_need(useful):
    limits = within(1, 8, 300)
    messages = {
        decide(AutoscalingState(8), limits, Observation(need, 1, useful, 8), 0.0).message
        for need in (11, 12, 40)
    }
    assert len(messages) == 1


def test_paused_autoscaling_keeps_the_number():
    frozen = within(1, 8, 0, paused=True)
    decision = decide(AutoscalingState(5), frozen, Observation(1, 1, 0, 5), 0.0)
    assert decision.state.desired == 5


def test_without_a_measurement_the_number_stays():
    limits = within(1, 8, 0)
    assert decide(AutoscalingState(5), limits, Observation(), 0.0).state.desired == 5


def test_idle_inputs_go_to_zero_and_return_with_the_first_consumer():
    limits, state = within(2, 8, 0, idle_ttl=600), AutoscalingState(5)
    numbers = []
    for now in range(0, 700, 100):
        state = decide(state, limits, Observation(0.0, 0, 0, 5), float(now)).state
        numbers.append(state.desired)
    assert numbers == [2, 2, 2, 2, 2, 2, 0]
    silent = decide(state, limits, Observation(), 700.0).state
    assert silent.desired == 0, "a dispatcher that does not answer is not a consumer"
    woken = decide(silent, limits, Observation(None, 1), 710.0).state
    assert (woken.desired, woken.idle_since) == (8, None)


def test_a_dispatcher_that_stopped_answering_does_not_scale_to_zero():
    """Its last answer had no consumers. Consumers that came since are not known."""
    limits = within(2, 8, 0, idle_ttl=600)
    state = decide(AutoscalingState(5), limits, Observation(0.0, 0), 0.0).state
    silent = decide(state, limits, Observation(), 700.0).state
    assert silent.desired == 2
    assert decide(silent, limits, Observation(0.0, 0), 710.0).state.desired == 0


def test_time_without_an_answer_does_not_count_as_idle():
    limits = within(2, 8, 0, idle_ttl=600)
    state = decide(AutoscalingState(5), limits, Observation(), 0.0).state
    assert decide(state, limits, Observation(0.0, 0), 700.0).state.desired == 2


def test_paused_time_does_not_count_for_the_window():
    limits = within(1, 8, 120)
    state = decide(AutoscalingState(5), limits, Observation(1.0, 1, 0, 5), 0.0).state
    paused = limits.model_copy(update={"paused": True})
    state = decide(state, paused, Observation(5.0, 1, 0, 5), 60.0).state
    assert decide(state, limits, Observation(1.0, 1, 0, 5), 1000.0).state.desired == 5


def test_consumers_during_a_pause_of_autoscaling_reset_the_idle_time():
    limits = within(1, 8, 120, idle_ttl=600)
    state = decide(AutoscalingState(5), limits, Observation(0.0, 0), 0.0).state
    paused = limits.model_copy(update={"paused": True})
    state = decide(state, paused, Observation(5.0, 1, 0, 5), 900.0).state
    assert state.desired == 5
    assert decide(state, limits, Observation(0.0, 0), 1000.0).state.desired == 5


def test_without_a_ttl_the_minimum_stays():
    limits, state = within(2, 8, 0), AutoscalingState(5)
    for now in range(0, 9000, 100):
        state = decide(state, limits, Observation(0.0, 0), float(now)).state
    assert state.desired == 2


# Workers in the trainers' own pods: the minimum may be 0.

BESIDE = within(0, 20, 120.0)


def test_no_worker_starts_while_own_workers_start():
    state = AutoscalingState(0)
    for now in range(0, int(LOCAL_START_SECONDS), 10):
        state = decide(state, BESIDE, Observation(None, 2), float(now)).state
        assert state.desired == 0
    state = decide(state, BESIDE, Observation(None, 2), LOCAL_START_SECONDS).state
    assert state.desired > 0


def test_the_time_for_own_workers_begins_again_once_a_rate_is_known():
    state = decide(AutoscalingState(0), BESIDE, Observation(None, 2), 0.0).state
    state = decide(state, BESIDE, Observation(0.0, 2), 50.0).state
    assert (state.desired, state.unmeasured_since) == (0, None)
    assert decide(state, BESIDE, Observation(None, 2), 100.0).state.desired == 0


def test_without_own_workers_the_first_worker_starts_at_once():
    limits = within(1, 20, 120, idle_ttl=10)
    assert decide(AutoscalingState(0), limits, Observation(None, 2), 0.0).state.desired > 0


@given(st.integers(0, 20), st.floats(1, 600))
def test_own_workers_that_suffice_end_all_workers_after_the_window(count, window):
    limits = within(0, 20, window)
    state = settle(AutoscalingState(count), limits, 0.0, 0, seconds=window + 60)
    assert state.desired == 0


@given(st.floats(0.1, 20))
def test_workers_start_at_once_when_own_workers_no_longer_suffice(need):
    state = decide(AutoscalingState(0), BESIDE, Observation(need, 1), 0.0).state
    assert state.desired == min(math.ceil(need * (1 - STALL_TOLERANCE) - 1e-9), 8) or need > 8
    assert state.desired >= 1


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
