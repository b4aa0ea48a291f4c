"""The bid of a claim, and the workers that it counts for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.budget.claim import (
    Claim,
    Grant,
    WorkerRequest,
    add,
    by_name,
    completed,
    full_grant,
    present_amounts,
    total_amounts,
)

KEY = ("team", "digits")


@pytest.mark.parametrize(("needed", "bid"), [(None, 2.0), (4, 4.0), (16, 1.0), (0, 0.0)])
def test_a_bid_is_the_stall_cost_that_one_needed_worker_saves(needed, bid):
    assert Claim(KEY, 8, stall_cost=16.0, needed=needed).bid == bid


def test_workers_that_exist_or_are_about_to_are_present():
    assert Claim(KEY, 0, replicas=2, leaving=1).present == 3


def test_a_full_grant_has_no_limit_and_no_message():
    assert full_grant(5) == Grant(5, 5, "", "")


def test_amounts_follow_the_names_of_resources():
    amount = (1, 2, 3, 4, 5)
    assert by_name(amount, ["a", "b"], ["b", "c"]) == (1, 2, 3, 5, 0)
    assert by_name(amount, ["a", "b"], ["b", "c"], (9, 9, 9, 9, 6)) == (1, 2, 3, 5, 6)


def test_a_request_is_completed_with_what_it_lacks_alone():
    known = WorkerRequest(
        Claim(KEY, 8, 2, 4, worker_size=(1, 2, 3, 4), excess=(0, 0, 0, 1)),
        labels={"of": "us"},
        scaling=True,
        resources=("a",),
    )
    found = WorkerRequest(
        replace(
            Claim(KEY, 9, worker_size=(1, 9, 9, 6, 9)),
            excess=(0, 7, 7, 2, 7),
            dispatcher=(0, 7, 7, 7, 3),
        ),
        labels=None,
        namespace_labels={"team": "a"},
        resources=("b", "a"),
    )
    claim = replace(
        known.claim, worker_size=(1, 2, 3, 6, 4), excess=(0, 0, 0, 2, 1), dispatcher=(0, 0, 0, 7, 3)
    )
    of = {"team": "a"}
    expected = replace(known, claim=claim, namespace_labels=of, resources=("b", "a"))
    assert completed(known, found) == expected
    other = replace(found, namespace_labels={"team": "b"})
    assert completed(expected, other).namespace_labels == of


amounts = st.tuples(*[st.integers(0, 1 << 40)] * 3)


def claim(name, **fields):
    return Claim(("team", name), 0, worker_size=(1, 500, 10), **fields)


def test_a_claim_counts_in_each_of_its_budgets_and_in_no_other():
    parts = [(claim("a", budgets=("all", "vision")), 2), (claim("b", budgets=("all",)), 3)]
    assert total_amounts(("all", "vision", "speech"), parts) == {
        "all": (5, 2500, 50),
        "vision": (2, 1000, 20),
        "speech": (0, 0, 0),
    }


def test_pods_that_are_larger_than_new_ones_count_with_their_excess():
    larger = claim("a", budgets=("all",), replicas=1, leaving=1, excess=(0, 300, 5))
    assert present_amounts(("all",), [larger]) == {"all": (2, 1300, 25)}


@given(amounts, amounts)
def test_subtraction_undoes_addition(one, other):
    assert add(add(one, other), other, -1) == one
