"""The rules of a stored InputPolicy, with the selectors that only v1beta1 has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from distributed_input.api.errors import ConfigError
from distributed_input.api.resource.conversion import kept
from distributed_input.api.resource.conversion.convert import convert
from distributed_input.api.resource.conversion.policy import UNKNOWN
from distributed_input.api.resource.policy import BudgetSpec, InputPolicy, PolicySpec
from distributed_input.api.resource.problems import problems
from distributed_input.api.resource.v1beta1.input import BETA_VERSION
from distributed_input.api.resource.v1beta1.selectors import LabelSelector

Json = dict[str, Any]


class SelectingBudget(BudgetSpec):
    """A budget of v1alpha1 with the selectors of v1beta1."""

    namespace_requirements: LabelSelector
    requirements: LabelSelector

    def covers(
        self,
        namespace: str,
        labels: Mapping[str, str] | None,
        namespace_labels: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether this budget selects an input: see `BudgetSpec.covers`."""
        if self.namespaces and namespace not in self.namespaces:
            return False
        selected = self.namespace_requirements.matches(namespace_labels)
        return selected and self.requirements.matches(labels)


def policy_rules(stored: Json) -> PolicySpec:
    """Return the rules of a policy, as the API server stores it.

    Unknown fields come from a newer definition. The API server has validated them.

    Raises:
        pydantic.ValidationError: it is invalid.
        ConfigError: requirements of a selector are lost or invalid, so it is unknown which inputs
            it selects.
    """
    spec = InputPolicy.model_validate({**stored, "status": {}}, extra="ignore").spec
    beta = convert({key: stored[key] for key in stored if key != "status"}, BETA_VERSION)
    by_name = {one["name"]: one for one in beta.get("spec", {}).get("budgets") or ()}
    budgets = [_selecting(one, by_name.get(one.name, {})) for one in spec.budgets]
    return spec.model_copy(update={"budgets": budgets})


def _selecting(budget: BudgetSpec, beta: Json) -> BudgetSpec:
    selectors = {key: beta.get(key) or {} for key in ("namespaceSelector", "selector")}
    for key, labels in zip(selectors, (budget.namespace_selector, budget.selector), strict=True):
        found = selectors[key].get("matchExpressions")
        if labels.get(UNKNOWN) != (kept.digest(found) if found else None):
            raise ConfigError(
                f"spec.budgets: {key} of budget {budget.name!r} has lost its matchExpressions, "
                "because a client wrote the policy as v1alpha1 or removed its annotations: write "
                "it again as v1beta1"
            )
    namespaces, inputs = (
        _selector(one, f"{key} of budget {budget.name!r}") for key, one in selectors.items()
    )
    if not namespaces.match_expressions and not inputs.match_expressions:
        return budget
    fields = {name: getattr(budget, name) for name in BudgetSpec.model_fields}
    return SelectingBudget.model_construct(
        **fields, namespace_requirements=namespaces, requirements=inputs
    )


def _selector(value: Json, what: str) -> LabelSelector:
    try:
        return LabelSelector.model_validate(value, extra="ignore")
    except ValidationError as error:
        found = "; ".join(map(str, problems(error, LabelSelector)))
        raise ConfigError(f"spec.budgets: {what}: {found}") from None
