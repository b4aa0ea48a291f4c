"""The targets of autoscaling with the traces in docs/scaling.md."""

from __future__ import annotations

import pytest

from testing.simulator import traces
from testing.simulator.baselines import Hpa
from testing.simulator.oracle import Oracle
from testing.simulator.policies import Ours, OursBrief
from testing.simulator.results import run

_START = 16.0
"""Maximum start-up time of a worker on these traces, in seconds."""


@pytest.fixture(scope="module")
def shared():
    return {policy: run(traces.shared(), policy) for policy in (Ours, Hpa, Oracle)}


def test_under_a_budget_the_stall_is_a_third_of_hpas_with_no_more_workers(shared):
    assert 3 * shared[Ours].stall_seconds <= shared[Hpa].stall_seconds
    assert shared[Ours].worker_hours <= shared[Hpa].worker_hours


def test_under_a_budget_the_cost_is_at_most_a_tenth_above_the_oracles(shared):
    assert shared[Ours].cost <= 1.1 * shared[Oracle].cost


def test_a_budget_holds_at_every_moment(shared):
    assert shared[Ours].most_used <= 60


@pytest.mark.parametrize(
    "trace", [traces.steps(), traces.epochs(), traces.spot()], ids=lambda trace: trace.name
)
def test_the_cost_of_one_input_is_at_most_a_tenth_above_the_oracles(trace):
    assert run(trace, Ours).cost <= 1.1 * run(trace, Oracle).cost


@pytest.mark.parametrize("trace", traces.all_traces(), ids=lambda trace: trace.name)
def test_the_number_of_workers_does_not_oscillate(trace):
    assert run(trace, Ours).oscillations == 0


def test_a_step_up_is_met_within_thirty_seconds_plus_the_start_up_time():
    assert max(run(traces.steps(), Ours).settled) <= 30 + _START


def test_a_step_down_follows_as_soon_as_the_window_allows():
    assert max(run(traces.steps(), OursBrief).settled_down) <= 30 + _START
    assert max(run(traces.steps(), Ours).settled_down) <= 120 + 30


def test_a_dataset_that_becomes_four_times_slower_stalls_for_less_than_a_minute():
    outcome = run(traces.steps(), Ours)
    later = [stall["a"] for time, _, stall in outcome.history if 960 <= time < 2700]
    assert sum(later) / len(later) < 0.05
