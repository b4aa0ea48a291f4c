"""The part of the demand that the workers in the trainers' own pods can meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.local_workers import PLANNED_SHARE
from distributed_input_operator.autoscaling.rates import met_locally

RATES = st.floats(0.0, 1e6)
DEMANDS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "c"]), RATES), max_size=8)
CAPACITIES = st.dictionaries(st.sampled_from("abc"), RATES)


@given(DEMANDS, CAPACITIES)
def test_it_is_at_most_the_demand_and_the_capacity(demand, capacity):
    found = met_locally(demand, capacity)
    assert 0 <= found <= sum(rate for _, rate in demand) * (1 + 1e-9)
    assert found <= sum(capacity.values()) * (1 + 1e-9)


@given(DEMANDS, CAPACITIES, st.sampled_from("abc"), RATES)
def test_more_capacity_never_meets_less(demand, capacity, pod, more):
    larger = {**capacity, pod: capacity.get(pod, 0.0) + more}
    assert met_locally(demand, capacity) <= met_locally(demand, larger) * (1 + 1e-9)


@given(DEMANDS, CAPACITIES)
def test_trainers_without_own_workers_are_not_met(demand, capacity):
    others = [(pod, rate) for pod, rate in demand if pod in capacity]
    assert met_locally(demand, capacity) == pytest.approx(met_locally(others, capacity))


def test_the_spare_capacity_of_one_pod_does_not_meet_the_demand_of_another():
    assert met_locally([("a", 10.0), ("b", 100.0)], {"a": 1000.0}) == 10.0


def test_consumers_of_one_pod_share_its_worker():
    assert met_locally([("a", 60.0), ("a", 60.0)], {"a": 100.0}) == 100.0 * PLANNED_SHARE
