"""The custom resource definition of InputPolicy."""

from __future__ import annotations

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
