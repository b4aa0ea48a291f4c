"""The model of InputPolicy."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.policy import UNLIMITED, BudgetSpec, PolicySpec


def budget(**spec: Any) -> BudgetSpec:
    return BudgetSpec.model_validate({"name": "a", **spec})


def test_amounts_are_integers_in_small_units():
    made = budget(limits={"workers": 4, "cpu": "1500m"}, guaranteed={"memory": "1Gi"}).budget()
    assert made.limits == (4, 1500, UNLIMITED)
    assert made.guaranteed == (0, 0, 1 << 30)


def test_a_limit_of_zero_is_a_limit():
    assert budget(limits={"workers": 0, "cpu": 0}).budget().limits == (0, 0, UNLIMITED)


def test_a_very_large_amount_is_unlimited():
    """The API server accepts it, so the operator must not refuse the policy."""
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
def test_a_budget_covers_inputs_by_namespace_and_labels(spec, covered):
    assert budget(**spec).covers("team", {"tier": "batch", "else": "y"}) is covered


def test_a_budget_may_cover_an_input_with_unknown_labels():
    assert budget(selector={"tier": "batch"}).covers("team", None)
    assert not budget(namespaces=["other"]).covers("team", None)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"budgets": [{"name": "a"}, {"name": "a"}]}, "is used twice"),
        (
            {"budgets": [{"name": "a", "limits": {"cpu": 1}, "guaranteed": {"cpu": "1500m"}}]},
            "is greater than limits.cpu: lower guaranteed.cpu",
        ),
        ({"budgets": [{"name": "a", "limit": {}}]}, "Extra inputs"),
        (
            {"budgets": [{"name": "a", "default": True, "namespaces": ["b"]}]},
            "excludes namespaces and selector: remove them",
        ),
        (
            {"budgets": [{"name": "a", "default": True, "selector": {"b": "c"}}]},
            "excludes namespaces and selector",
        ),
        ({"caps": {"minReplicas": 0}}, "greater than or equal to 1"),
        ({"stallCosts": {"gpu": -1}}, "greater than or equal to 0"),
    ],
)
def test_an_invalid_policy_is_refused(spec, message):
    with pytest.raises(ValidationError, match=message):
        PolicySpec.model_validate(spec)


def test_modules_allow_themselves_and_what_is_below_them():
    spec = PolicySpec.model_validate({"modules": ["digits", "team.data"]})
    allowed = ("digits", "digits.train", "team.data", "team.data.images")
    refused = ("os", "digitsx", "team", "team.database")
    assert all(map(spec.allows_module, allowed))
    assert not any(map(spec.allows_module, refused))
    assert PolicySpec().allows_module("os")
