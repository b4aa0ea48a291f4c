"""Sums of what claims use of budgets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.budget.claim import Claim
from distributed_input_operator.budget.usage import add, present_amounts, total_amounts

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
