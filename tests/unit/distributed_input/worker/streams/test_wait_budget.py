"""The wait budget is spent by waiting and refills slowly."""

from __future__ import annotations

import pytest

from distributed_input.worker.streams.wait_budget import MAX_SECONDS, WaitBudget


def test_waiting_spends_the_budget() -> None:
    budget = WaitBudget(100.0)
    assert budget.update(100.0) == MAX_SECONDS
    assert budget.update(104.0, waited=4.0) == pytest.approx(MAX_SECONDS - 4 * 0.98)


def test_the_budget_refills_with_the_elapsed_time_up_to_its_maximum() -> None:
    budget = WaitBudget(0.0)
    budget.update(10.0, waited=10.0)
    left = budget.update(10.0)
    assert budget.update(60.0) == pytest.approx(left + 1.0)
    assert budget.update(1e6) == MAX_SECONDS


def test_time_that_several_streams_wait_counts_once() -> None:
    one, several = WaitBudget(0.0), WaitBudget(0.0)
    one.update(2.0, waited=2.0)
    several.update(2.0, waited=2.0)
    assert several.update(2.0, waited=2.0) == one.update(2.0)
