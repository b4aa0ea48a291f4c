"""The policy as it is written, and as its status tells of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.policy import (
    UNLIMITED,
    Budget,
    BudgetSpec,
    PolicySpec,
    PolicyStatus,
)
from distributed_input_operator.budget.ledger import Used
from distributed_input_operator.budget.policy_report import report

NOW = 1_800_000_000.0
USED = [Used(Budget("all", (60, UNLIMITED, UNLIMITED)), 3, 80, (60, 90_000, 96 << 30))]


def budget(**spec):
    return BudgetSpec.model_validate({"name": "a", **spec})


def told(*args):
    """What is written."""
    status, again = report(*args)
    assert status is not None
    return status, again


def test_amounts_are_whole_numbers_of_small_units():
    made = budget(limits={"workers": 4, "cpu": "1500m"}, guaranteed={"memory": "1Gi"}).budget()
    assert made.limits == (4, 1500, UNLIMITED)
    assert made.guaranteed == (0, 0, 1 << 30)


def test_a_budget_of_nothing_is_one():
    assert budget(limits={"workers": 0, "cpu": 0}).budget().limits == (0, 0, UNLIMITED)


def test_more_than_anyone_has_is_no_limit():
    """The API server takes it, so a policy that says so has to be in force."""
    made = budget(guaranteed={"memory": "100E", "cpu": "9" * 30}, limits={"cpu": "9" * 31}).budget()
    assert made.limits == (UNLIMITED, UNLIMITED, UNLIMITED)
    assert made.guaranteed == (0, UNLIMITED, UNLIMITED)


@pytest.mark.parametrize(
    ("spec", "covered"),
    [
        ({}, True),
        ({"namespaces": ["team"]}, True),
        ({"namespaces": ["other"]}, False),
        ({"selector": {"tier": "batch"}}, True),
        ({"selector": {"tier": "batch", "more": "x"}}, False),
        ({"namespaces": ["other"], "selector": {"tier": "batch"}}, False),
    ],
)
def test_who_counts_in_a_budget(spec, covered):
    assert budget(**spec).covers("team", {"tier": "batch", "else": "y"}) is covered


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"budgets": [{"name": "a"}, {"name": "a"}]}, "is there twice"),
        (
            {"budgets": [{"name": "a", "limits": {"cpu": 1}, "guaranteed": {"cpu": "1500m"}}]},
            "cpu are more than the limit",
        ),
        ({"budgets": [{"name": "a", "limit": {}}]}, "Extra inputs"),
        ({"stallCosts": {"gpu": -1}}, "greater than or equal to 0"),
    ],
)
def test_mistakes_are_told(spec, words):
    with pytest.raises(ValidationError, match=words):
        PolicySpec.model_validate(spec)


def test_the_status_is_written_when_something_moved_and_not_more_often_than_anyone_reads():
    status, again = told(PolicyStatus(), 1, "", USED, NOW, 30.0)
    assert (status["summary"], again) == ("all 60/60", 30.0)
    assert status["budgets"][0] == {
        "name": "all",
        "inputs": 3,
        "workers": 60,
        "wanted": 80,
        "cpu": "90",
        "memory": "96Gi",
    }
    before = PolicyStatus.model_validate(status)
    assert report(before, 1, "", USED, NOW + 500, 30.0) == (None, 300.0)
    moved = [Used(USED[0].budget, 3, 80, (59, 90_000, 96 << 30))]
    assert report(before, 1, "", moved, NOW + 10, 30.0) == (None, 20.0)
    assert told(before, 1, "", moved, NOW + 31, 30.0)[0]["summary"] == "all 59/60"
    assert told(before, 2, "", moved, NOW + 1, 30.0)[0]["observedGeneration"] == 2
    undated = before.model_copy(update={"observed_at": ""})
    assert told(undated, 1, "", moved, NOW + 10, 30.0)[0]["summary"] == "all 59/60"


def test_a_budget_without_a_limit_of_workers_tells_how_many_there_are():
    used = [replace(USED[0], budget=Budget("all", (UNLIMITED, 1000, UNLIMITED)))]
    assert told(PolicyStatus(), 1, "", used, NOW, 30.0)[0]["summary"] == "all 60"


@pytest.mark.parametrize(
    ("memory", "told_as"), [(2 << 40, "2048Gi"), (300 << 20, "0.29Gi"), (1500 << 30, "1500Gi")]
)
def test_memory_is_told_as_a_quantity(memory, told_as):
    used = [replace(USED[0], used=(60, 90_000, memory))]
    assert told(PolicyStatus(), 1, "", used, NOW, 30.0)[0]["budgets"][0]["memory"] == told_as
