"""The custom resource definition of InputPolicy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distributed_input.api.resource.policy_crd import policy_crd


def test_the_policy_is_cluster_scoped_and_has_one_name():
    spec = policy_crd()["spec"]
    assert spec["scope"] == "Cluster"
    (rule,) = spec["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    assert rule["rule"] == "self.metadata.name == 'cluster'"


def test_budgets_are_merged_by_name():
    schema = policy_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    budgets = schema["properties"]["spec"]["properties"]["budgets"]
    assert budgets["x-kubernetes-list-map-keys"] == ["name"]


def test_v1beta1_is_served_only_by_the_chart():
    alpha, beta = policy_crd()["spec"]["versions"]
    assert (alpha["name"], alpha["served"], alpha["storage"]) == ("v1alpha1", True, True)
    assert (beta["name"], beta["served"], beta["storage"]) == ("v1beta1", False, False)


def test_no_rule_is_too_expensive_for_kubernetes_1_29():
    """It refuses these in lists and maps. `make kubernetes-versions` tries the definition."""
    rules = [rule for version in policy_crd()["spec"]["versions"] for rule in found(version)]
    assert any("quantity(" in rule for rule in rules)
    assert [one for one in rules if "string(self" in one or "type(self) ==" in one] == []


def found(schema: Any) -> Iterator[str]:
    """Yield all rules in a schema."""
    for value in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(value, dict | list):
            yield from found(value)
    if isinstance(schema, dict):
        rules = schema.get("x-kubernetes-validations", [])
        yield from (one["rule"] for one in rules if isinstance(one, dict) and "rule" in one)
