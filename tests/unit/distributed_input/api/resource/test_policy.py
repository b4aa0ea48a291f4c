"""The policy as it is written, and as its status tells of it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.policy import UNLIMITED, BudgetSpec, PolicySpec


def budget(**spec):
    return BudgetSpec.model_validate({"name": "a", **spec})


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
