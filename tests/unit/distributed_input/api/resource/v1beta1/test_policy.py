"""Validation of InputPolicies of v1beta1."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.v1beta1.policy import BetaPolicySpec


def budget(**fields: Any) -> dict[str, Any]:
    return {"budgets": [{"name": "a", **fields}]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"budgets": [{"name": "a"}, {"name": "a"}]}, "is used twice"),
        ({"priorityClasses": [{"name": "a", "value": 1}] * 2}, "is used twice"),
        (budget(limits={"cpu": 1}), "limits.cpu"),
        (budget(default=True), "default"),
        (budget(selector={"team": "a"}), "selector.team"),
        (
            budget(limits={"workers": 1}, guaranteed={"workers": 2}),
            "is greater than limits.workers: lower guaranteed.workers",
        ),
        (
            budget(limits={"resources": {"cpu": 1}}, guaranteed={"resources": {"cpu": "1500m"}}),
            "is greater than limits.resources.cpu",
        ),
        (budget(appliesTo="OtherInputs", namespaces=["a"]), "OtherInputs excludes namespaces"),
        (
            budget(appliesTo="OtherInputs", selector={"matchLabels": {"a": "b"}}),
            "OtherInputs excludes namespaces",
        ),
        ({"stallCosts": {"gpu": 0.5}}, "string"),
        ({"stallCosts": {"gpu": "2M"}}, "is out of range: use 0 to 1M"),
        ({"caps": {"weight": "0"}}, "is out of range: use 1m to 1000"),
    ],
)
def test_invalid_policies(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as error:
        BetaPolicySpec.model_validate(spec)
    assert message in str(error.value)


def test_a_guarantee_without_a_limit_is_valid() -> None:
    BetaPolicySpec.model_validate(budget(guaranteed={"workers": 2, "resources": {"cpu": 4}}))
    BetaPolicySpec.model_validate(budget(appliesTo="OtherInputs", selector={}))
