"""The laws of the conversion of InputPolicies, with generated policies of both versions."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError
from distributed_input.api.resource.conversion.convert import KEPT, VERSIONS, convert
from distributed_input.api.resource.conversion.policy import UNKNOWN
from distributed_input.api.resource.input import API_VERSION
from distributed_input.api.resource.policy import InputPolicy
from distributed_input.api.resource.policy_rules import policy_rules
from distributed_input.api.resource.v1beta1.input import BETA_VERSION
from testing.versions.generated import POLICIES, policies

Json = dict[str, Any]
# `make conversions N=10000` sets it.
law = settings(
    max_examples=int(os.environ.get("CONVERSIONS", "60")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def other(version: str) -> str:
    return BETA_VERSION if version == API_VERSION else API_VERSION


def text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def without_notes(found: Json) -> Json:
    result = copy.deepcopy(found)
    for key in KEPT.values():
        result["metadata"].get("annotations", {}).pop(key, None)
    if not result["metadata"].get("annotations", True):
        del result["metadata"]["annotations"]
    return result


@pytest.mark.parametrize("version", VERSIONS)
@law
@given(st.data())
def test_a_round_trip_gives_the_same_policy(version: str, data: st.DataObject) -> None:
    found = data.draw(policies(version))
    before = copy.deepcopy(found)
    there = convert(found, other(version))
    assert text(found) == text(before)
    assert there["apiVersion"] == other(version)
    assert text(convert(there, version)) == text(found)


@law
@given(policies(BETA_VERSION))
def test_a_valid_policy_of_v1beta1_is_valid_in_v1alpha1(found: Json) -> None:
    POLICIES[API_VERSION].model_validate(convert(found, API_VERSION))


@law
@given(policies(API_VERSION))
def test_a_valid_policy_of_v1alpha1_is_valid_in_v1beta1(found: Json) -> None:
    for budget in found.get("spec", {}).get("budgets", []):
        for amounts in (budget.get("limits", {}), budget.get("guaranteed", {})):
            # They have fields of their own, and were not compared here.
            for native in ("cpu", "memory"):
                amounts.get("resources", {}).pop(native, None)
    POLICIES[BETA_VERSION].model_validate(convert(found, BETA_VERSION))


@law
@given(st.data())
def test_a_change_of_one_budget_loses_nothing_of_others(data: st.DataObject) -> None:
    found = data.draw(policies(BETA_VERSION))
    budgets = found.setdefault("spec", {}).setdefault("budgets", [])
    there = convert(found, API_VERSION)
    there["spec"]["budgets"] = [
        *there["spec"]["budgets"],
        {"name": "added", "selector": {"tier": "batch"}, "limits": {"cpu": 1}},
    ]
    added = {
        "name": "added",
        "selector": {"matchLabels": {"tier": "batch"}},
        "limits": {"resources": {"cpu": 1}},
    }
    back = convert(there, BETA_VERSION)
    assert text(back["spec"]) == text({**found["spec"], "budgets": [*budgets, added]})


@law
@given(st.data())
def test_an_annotation_of_the_user_changes_no_meaning(data: st.DataObject) -> None:
    found = without_notes(data.draw(policies(API_VERSION)))
    stranger = convert(data.draw(policies(BETA_VERSION)), API_VERSION)
    plain = convert(found, BETA_VERSION)
    note = stranger["metadata"].get("annotations", {}).get(KEPT[BETA_VERSION], "[]")
    row = {"path": data.draw(PATHS), "value": data.draw(VALUES)}
    for one in (note, json.dumps([row])):
        tampered = copy.deepcopy(found)
        tampered["metadata"].setdefault("annotations", {})[KEPT[BETA_VERSION]] = one
        result = without_notes(convert(tampered, BETA_VERSION))
        assert text(without_notes(convert(result, API_VERSION))) == text(
            without_notes(convert(without_notes(plain), API_VERSION))
        )


VALUES = st.sampled_from([None, 5, "a", [], {}, [3], {"matchExpressions": [{"key": "a"}]}])
PATHS = st.sampled_from(
    [
        ["spec"],
        ["spec", "budgets"],
        ["spec", "order of budgets"],
        ["spec", "budgets", "research"],
        ["spec", "budgets", "research", "selector"],
        ["spec", "stallCosts", "cpu"],
        ["status", "budgets"],
    ]
)

REQUIREMENT = {"key": "tier", "operator": "NotIn", "values": ["batch"]}


def beta(**budget: Any) -> Json:
    return {
        "apiVersion": BETA_VERSION,
        "kind": "InputPolicy",
        "metadata": {"name": "cluster"},
        "spec": {"budgets": [{"name": "research", **budget}]},
    }


def test_each_field_has_its_counterpart() -> None:
    found = beta(
        appliesTo="SelectedInputs",
        selector={"matchLabels": {"tier": "batch"}},
        limits={"workers": 3, "resources": {"cpu": 4, "memory": "1Gi", "nvidia.com/gpu": 8}},
    )
    found["spec"] |= {"stallCosts": {"tpu": "1200m"}, "caps": {"weight": "500m"}}
    found["status"] = {"budgets": [{"name": "research", "requested": 2, "resources": {"cpu": "1"}}]}
    alpha = convert(found, API_VERSION)
    assert alpha["spec"] == {
        "budgets": [
            {
                "name": "research",
                "default": False,
                "selector": {"tier": "batch"},
                "limits": {
                    "workers": 3,
                    "cpu": 4,
                    "memory": "1Gi",
                    "resources": {"nvidia.com/gpu": 8},
                },
            }
        ],
        "stallCosts": {"tpu": 1.2},
        "caps": {"weight": 0.5},
    }
    assert alpha["status"]["budgets"] == [{"name": "research", "wanted": 2, "cpu": "1"}]


def test_a_number_with_too_many_digits_for_a_quantity_is_kept() -> None:
    alpha = {**beta(), "apiVersion": API_VERSION, "spec": {"stallCosts": {"tpu": 1.5e-40}}}
    there = convert(alpha, BETA_VERSION)
    assert there["spec"] == {"stallCosts": {"tpu": "0"}}
    POLICIES[BETA_VERSION].model_validate(there)
    assert convert(there, API_VERSION) == alpha


def test_an_older_operator_puts_no_input_into_a_budget_with_requirements() -> None:
    """It would otherwise give the budget's guarantee to all inputs."""
    alpha = without_notes(convert(beta(selector={"matchExpressions": [REQUIREMENT]}), API_VERSION))
    (labels,) = [one["selector"] for one in alpha["spec"]["budgets"]]
    assert set(labels) == {UNKNOWN}
    (budget,) = InputPolicy.model_validate(alpha).spec.budgets
    assert not budget.covers("team", {"tier": "training"})


@pytest.mark.parametrize("key", ["selector", "namespaceSelector"])
def test_a_selector_that_has_lost_its_requirements_is_an_error(key: str) -> None:
    """The budget would select no input, and so limit none."""
    stored = convert(beta(**{key: {"matchExpressions": [REQUIREMENT]}}), API_VERSION)
    policy_rules(stored)
    other = {**REQUIREMENT, "key": "other"}
    changed = convert(beta(**{key: {"matchExpressions": [other]}}), API_VERSION)
    for lost in (without_notes(stored), {**stored, "spec": changed["spec"]}):
        with pytest.raises(ConfigError, match=f"{key} of budget 'research' has lost"):
            policy_rules(lost)


def test_the_operator_applies_requirements() -> None:
    found = beta(
        selector={"matchLabels": {"team": "vision"}, "matchExpressions": [REQUIREMENT]},
        namespaceSelector={"matchExpressions": [{"key": "prod", "operator": "DoesNotExist"}]},
    )
    spec = policy_rules(convert(found, API_VERSION))
    (budget,) = spec.budgets
    assert spec.selects_namespaces
    assert budget.covers("any", {"team": "vision"}, {})
    assert not budget.covers("any", {"team": "vision", "tier": "batch"}, {})
    assert not budget.covers("any", {"team": "speech"}, {})
    assert not budget.covers("any", {"team": "vision"}, {"prod": ""})
    assert budget.covers("any", None, None)
    # Another value is another policy for the ledger.
    changed = beta(selector={"matchLabels": {"team": "vision"}, "matchExpressions": []})
    assert policy_rules(convert(changed, API_VERSION)) != spec


def test_a_selector_with_invalid_requirements_is_an_error() -> None:
    """A client of v1alpha1 may write any annotation: its digest is that of the content."""
    invalid = beta(selector={"matchExpressions": [{"key": "a", "operator": "Near"}]})
    text = (
        "^spec.budgets: selector of budget 'research': matchExpressions.0..operator: must be one "
        'of In, NotIn, Exists, DoesNotExist, not "Near"$'
    )
    with pytest.raises(ConfigError, match=text):
        policy_rules(convert(invalid, API_VERSION))


def test_the_rules_of_v1alpha1_stay_the_same() -> None:
    alpha = {
        "apiVersion": API_VERSION,
        "kind": "InputPolicy",
        "metadata": {"name": "cluster"},
        "spec": {"budgets": [{"name": "a", "selector": {"x": "y"}}], "stallCosts": {"a": 2.5}},
    }
    expected = InputPolicy.model_validate(alpha).spec
    assert policy_rules(alpha) == expected
