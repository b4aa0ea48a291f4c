"""The messages of limited inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributed_input.api.resource.policy import UNLIMITED, Budget
from distributed_input_operator.budget.allocation import allocate
from distributed_input_operator.budget.claim import Claim, Grant
from distributed_input_operator.budget.explanation import explained_grant

A, B = ("t", "a"), ("t", "b")


def cause(*claims, limit=(10, 8000, UNLIMITED)):
    """Return what the first claim's message says about its only budget."""
    limited = [replace(one, budgets=("team",)) for one in claims]
    grant = allocate({"team": Budget("team", limit)}, limited)[claims[0].key]
    return grant.message.partition("requested workers: budget team ")[2]


def test_a_message_names_no_other_input_if_there_is_none():
    assert cause(Claim(A, 12)) == "is used up; no other input uses it"
    assert cause(Claim(A, 12), Claim(B, 0)) == "is used up; no other input uses it"


def test_a_budget_smaller_than_one_worker_is_reported():
    large = Claim(A, 3, worker_size=(1, 9000, 0))
    assert cause(large) == "is smaller than one worker"
    assert cause(large, Claim(B, 20)) == "is smaller than one worker"
    assert cause(Claim(A, 3), limit=(0, 0, 0)) == "is smaller than one worker"


def test_a_difference_that_rounds_to_zero_counts_as_equal():
    near = cause(Claim(A, 10, stall_cost=1.0), Claim(B, 10, stall_cost=1.001))
    assert near == "is used up; it is shared with t/b, which loses no more per worker"


@pytest.mark.parametrize("priority", [0, 7])
def test_an_input_of_another_namespace_is_not_named(priority):
    rival = Claim(("rivals", "secret-project"), 12, stall_cost=4.0, priority=priority)
    message = cause(Claim(A, 12, 1), rival)
    assert "an input of another namespace" in message
    assert "secret-project" not in message
    assert "rivals" not in message


def test_a_budget_smaller_than_the_dispatcher_is_reported():
    large = Claim(A, 3, dispatcher=(0, 9000, 0), started=False, budgets=("team",))
    grant = allocate({"team": Budget("team", (10, 8000, UNLIMITED))}, [large])[A]
    assert grant.message == (
        "no dispatcher and 0 of 3 requested workers: budget team is smaller than the dispatcher"
    )


def test_an_input_whose_stall_costs_nothing_does_not_share():
    free, dear = Claim(A, 10, stall_cost=0.0), Claim(B, 10, stall_cost=1.0)
    assert cause(free, dear) == "is used up; t/b loses more per worker"
    kept = Claim(A, 10, 1, replicas=10, needed=0)
    assert cause(kept, dear) == "is used up; t/b loses more per worker"


def test_bids_may_differ_by_any_factor():
    tiny, huge = Claim(A, 10, stall_cost=1e-310), Claim(B, 10, stall_cost=4e12)
    assert cause(tiny, huge) == "is used up; t/b loses more per worker"


def test_minimums_of_others_are_reported_as_such():
    minimums = Claim(B, 10, 10, replicas=10)
    assert cause(Claim(A, 3), minimums) == "is used up; minimums and guarantees take the rest"


@pytest.mark.parametrize(
    ("now", "why", "grant"),
    [
        (4, "", Grant(4, 4)),
        (1, "", Grant(1, 4, "", "1 of 4 workers until other inputs' pods have terminated")),
        (4, "is full", Grant(4, 4, "team", "4 of 9 requested workers: budget team is full")),
    ],
)
def test_a_grant_explains_the_cause_or_the_wait(now, why, grant):
    assert explained_grant(Claim(A, 9), 4, now, "team", why) == grant
