"""The model of InputPolicy."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.policy import UNLIMITED, BudgetSpec, LabelSelector, PolicySpec


def budget(**spec: Any) -> BudgetSpec:
    return BudgetSpec.model_validate({"name": "a", **spec})


def test_amounts_are_integers_in_small_units():
    made = budget(
        limits={"workers": 4, "resources": {"cpu": "1500m"}},
        guaranteed={"resources": {"memory": "1Gi"}},
    ).budget()
    assert made.limits == (4, 1500, UNLIMITED)
    assert made.guaranteed == (0, 0, 1 << 30)


def test_a_limit_of_zero_is_a_limit():
    assert budget(limits={"workers": 0, "resources": {"cpu": 0}}).budget().limits == (
        0,
        0,
        UNLIMITED,
    )


def test_a_very_large_amount_is_unlimited():
    """The API server accepts it, so the operator must not refuse the policy."""
    guaranteed = {"resources": {"memory": "100E", "cpu": "9" * 30}}
    made = budget(guaranteed=guaranteed, limits={"resources": {"cpu": "9" * 31}}).budget()
    assert made.limits == (UNLIMITED, UNLIMITED, UNLIMITED)
    assert made.guaranteed == (0, UNLIMITED, UNLIMITED)


@pytest.mark.parametrize(
    ("spec", "covered"),
    [
        ({}, True),
        ({"namespaces": ["team"]}, True),
        ({"namespaces": ["other"]}, False),
        ({"selector": {"matchLabels": {"tier": "batch"}}}, True),
        ({"selector": {"matchLabels": {"tier": "batch", "more": "x"}}}, False),
        ({"namespaces": ["other"], "selector": {"matchLabels": {"tier": "batch"}}}, False),
    ],
)
def test_a_budget_covers_inputs_by_namespace_and_labels(spec, covered):
    assert budget(**spec).covers("team", {"tier": "batch", "else": "y"}) is covered


def test_a_budget_may_cover_an_input_with_unknown_labels():
    assert budget(selector={"matchLabels": {"tier": "batch"}}).covers("team", None)
    assert not budget(namespaces=["other"]).covers("team", None)


def policy(**fields: Any) -> dict[str, Any]:
    return {"budgets": [{"name": "a", **fields}]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"budgets": [{"name": "a"}, {"name": "a"}]}, "is used twice"),
        ({"priorityClasses": [{"name": "a", "value": 1}] * 2}, "is used twice"),
        ({"budgets": [{"name": "a", "limit": {}}]}, "Extra inputs"),
        ({"caps": {"minReplicas": 0}}, "greater than or equal to 1"),
        (
            policy(appliesTo="OtherInputs", namespaceSelector={"matchLabels": {"a": "b"}}),
            "OtherInputs",
        ),
        (
            policy(limits={"workers": 1}, guaranteed={"workers": 2}),
            "is greater than limits.workers: lower guaranteed.workers",
        ),
        (
            policy(limits={"resources": {"cpu": 1}}, guaranteed={"resources": {"cpu": "1500m"}}),
            "is greater than limits.resources.cpu",
        ),
        (policy(appliesTo="OtherInputs", namespaces=["a"]), "OtherInputs excludes namespaces"),
        (
            policy(appliesTo="OtherInputs", selector={"matchLabels": {"a": "b"}}),
            "OtherInputs excludes namespaces",
        ),
        ({"stallCosts": {"gpu": 0.5}}, "string"),
        ({"stallCosts": {"gpu": "2M"}}, "is out of range: use 0 to 1M"),
        ({"caps": {"weight": "0"}}, "is out of range: use 1m to 1000"),
    ],
)
def test_an_invalid_policy_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        PolicySpec.model_validate(spec)
    assert message in str(error.value)


def test_a_guarantee_without_a_limit_is_valid() -> None:
    PolicySpec.model_validate(policy(guaranteed={"workers": 2, "resources": {"cpu": 4}}))
    PolicySpec.model_validate(policy(appliesTo="OtherInputs", selector={}))


def test_modules_allow_themselves_and_what_is_below_them():
    spec = PolicySpec.model_validate({"modules": ["digits", "team.data"]})
    allowed = ("digits", "digits.train", "team.data", "team.data.images")
    refused = ("os", "digitsx", "team", "team.database")
    assert all(map(spec.allows_module, allowed))
    assert not any(map(spec.allows_module, refused))
    assert PolicySpec().allows_module("os")


def test_a_budget_selects_namespaces_by_label():
    by_label = budget(namespaceSelector={"matchLabels": {"team": "vision"}})
    assert by_label.covers("a", {}, {"team": "vision", "else": "y"})
    assert not by_label.covers("a", {}, {"team": "speech"})
    assert by_label.covers("a", {}, None), "unknown labels may match"


def test_an_input_of_a_namespace_with_unknown_labels_counts_in_all_budgets_that_may_be():
    spec = PolicySpec.model_validate(
        {
            "budgets": [
                {"name": "vision", "namespaceSelector": {"matchLabels": {"team": "vision"}}},
                {"name": "all"},
                {"name": "rest", "appliesTo": "OtherInputs"},
            ]
        }
    )
    assert spec.budgets_of("a", {}, None) == ("vision", "all", "rest")
    assert spec.budgets_of("a", {}, {"team": "vision"}) == ("vision", "all")
    assert spec.budgets_of("a", {}, {}) == ("all",)


def test_with_classes_only_they_set_the_priority():
    classes = [{"name": "high", "value": 9}, {"name": "own", "value": -3, "namespaces": ["a"]}]
    spec = PolicySpec.model_validate({"priorityClasses": classes})
    assert spec.priority("b", "high", 500) == 9
    assert spec.priority("a", "own", 500) == -3
    assert [spec.priority("b", name, 500) for name in ("own", "none", "")] == [0, 0, 0]
    assert PolicySpec().priority("b", "high", 500) == 500
    assert spec.classes_of("b") == {"high": 9}


def test_other_resources_follow_cpu_and_memory_in_the_order_of_their_names():
    limits = {"resources": {"nvidia.com/gpu": 8, "example.com/fpga": "2"}}
    spec = PolicySpec.model_validate({"budgets": [{"name": "a", "limits": limits}, {"name": "b"}]})
    names = spec.resource_names
    assert names == ("example.com/fpga", "nvidia.com/gpu")
    assert spec.budgets[0].budget(names).limits[3:] == (2, 8)
    assert spec.budgets[1].budget(names).limits[3:] == (UNLIMITED, UNLIMITED)
    with pytest.raises(ValidationError, match=r"limits.resources.a/b: lower"):
        budget(limits={"resources": {"a/b": 1}}, guaranteed={"resources": {"a/b": 2}})


def selector(*requirements: dict[str, Any], **labels: str) -> LabelSelector:
    found = {"matchLabels": labels, "matchExpressions": list(requirements)}
    return LabelSelector.model_validate(found)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ({"operator": "In", "values": ["a", "b"]}, [True, False, False]),
        ({"operator": "NotIn", "values": ["a", "b"]}, [False, True, True]),
        ({"operator": "Exists"}, [True, True, False]),
        ({"operator": "DoesNotExist"}, [False, False, True]),
    ],
)
def test_the_operators_are_those_of_kubernetes(
    requirement: dict[str, Any], expected: list[bool]
) -> None:
    made = selector({"key": "tier", **requirement})
    assert [made.matches(one) for one in ({"tier": "a"}, {"tier": "c"}, {})] == expected


def test_all_requirements_must_be_met() -> None:
    made = selector({"key": "tier", "operator": "Exists"}, team="vision")
    assert made.matches({"team": "vision", "tier": ""})
    assert not made.matches({"team": "vision"})
    assert not made.matches({"tier": "a"})


def test_an_empty_selector_and_unknown_labels_match() -> None:
    assert selector().is_empty
    assert selector().matches({})
    made = selector(team="vision")
    assert not made.is_empty
    assert made.matches(None)


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ({"operator": "In"}, "operator In needs values"),
        ({"operator": "Exists", "values": ["a"]}, "operator Exists excludes values"),
        ({"operator": "Near"}, "'In', 'NotIn', 'Exists' or 'DoesNotExist'"),
    ],
)
def test_values_belong_to_the_operator(requirement: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        selector({"key": "tier", **requirement})
