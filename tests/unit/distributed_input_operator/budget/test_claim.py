"""The bid of a claim, and the workers that it counts for."""

from __future__ import annotations

import pytest

from distributed_input_operator.budget.claim import Claim, Grant, full_grant

KEY = ("team", "digits")


@pytest.mark.parametrize(("needed", "bid"), [(None, 2.0), (4, 4.0), (16, 1.0), (0, 0.0)])
def test_a_bid_is_the_stall_cost_that_one_needed_worker_saves(needed, bid):
    assert Claim(KEY, 8, stall_cost=16.0, needed=needed).bid == bid


@pytest.mark.parametrize(("replicas", "pods"), [(3, 0), (0, 3), (3, 2), (2, 3)])
def test_workers_that_exist_or_are_about_to_are_present(replicas, pods):
    assert Claim(KEY, 0, replicas=replicas, pods=pods).present == 3


def test_a_full_grant_has_no_limit_and_no_message():
    assert full_grant(5) == Grant(5, 5, "", "")
