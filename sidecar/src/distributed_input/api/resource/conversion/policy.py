"""Spec and status of an InputPolicy in one version, from those in the other.

The budgets are converted as a mapping by name: see `opened`. So if a client of the other version
changes one budget, the annotation still applies to the other budgets.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api.resource.conversion import kept
from distributed_input.api.resource.conversion.kept import Json
from distributed_input.api.resource.conversion.quantities import alpha_number, beta_number
from distributed_input.api.resource.input import GROUP

UNKNOWN = f"{GROUP}/selector"
"""Label in v1alpha1 that no object has. Its value is a digest of the requirements of v1beta1, which
v1alpha1 does not have. So an older operator puts no input into such a budget."""
_ORDER = "order of budgets"
_SCOPES = {True: "OtherInputs", False: "SelectedInputs"}
_SELECTORS = ("namespaceSelector", "selector")
_AMOUNTS = ("limits", "guaranteed")
_NATIVE = ("cpu", "memory")


def opened(body: Json) -> Json:
    """Return a policy with its budgets as a mapping by name, and with their order."""
    budgets = kept.at(body, ("spec", "budgets"))
    if not budgets or not _all_named(budgets[0]):
        return body
    by_name = {one["name"]: one for one in budgets[0]}
    return {**body, "spec": {**body["spec"], "budgets": by_name, _ORDER: list(by_name)}}


def closed(body: Json) -> Json:
    """Return a policy with its budgets as a list: the reverse of `opened`."""
    spec = body.get("spec")
    if not isinstance(spec, dict) or _ORDER not in spec:
        return body
    rest = {key: value for key, value in spec.items() if key != _ORDER}
    return {**body, "spec": {**rest, "budgets": [spec["budgets"][one] for one in spec[_ORDER]]}}


def _all_named(value: Any) -> bool:
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        return False
    names = [one.get("name") for one in value]
    return all(isinstance(one, str) for one in names) and len(set(names)) == len(names)


def policy_to_beta(body: Json) -> Json:
    """Return spec and status of v1beta1."""
    result = dict(body)
    if isinstance(spec := body.get("spec"), dict):
        result["spec"] = _with_numbers(spec, beta_number)
        if isinstance(budgets := spec.get("budgets"), dict):
            result["spec"]["budgets"] = {key: _beta_budget(budgets[key]) for key in budgets}
    if isinstance(status := body.get("status"), dict):
        result["status"] = _with_usage(status, _beta_usage)
    return result


def policy_to_alpha(body: Json) -> Json:
    """Return spec and status of v1alpha1."""
    result = dict(body)
    if isinstance(spec := body.get("spec"), dict):
        result["spec"] = _with_numbers(spec, alpha_number)
        if isinstance(budgets := spec.get("budgets"), dict):
            result["spec"]["budgets"] = {key: _alpha_budget(budgets[key]) for key in budgets}
    if isinstance(status := body.get("status"), dict):
        result["status"] = _with_usage(status, _alpha_usage)
    return result


def _with_numbers(spec: Json, number: Any) -> Json:
    result = dict(spec)
    if isinstance(costs := spec.get("stallCosts"), dict):
        result["stallCosts"] = {key: number(costs[key]) for key in costs}
    if isinstance(caps := spec.get("caps"), dict) and "weight" in caps:
        result["caps"] = {**caps, "weight": number(caps["weight"])}
    return result


def _beta_budget(budget: Any) -> Any:
    if not isinstance(budget, dict):
        return budget
    result = {key: value for key, value in budget.items() if key != "default"}
    if "default" in budget:
        result["appliesTo"] = _SCOPES[budget["default"] is True]
    for key in _SELECTORS:
        if isinstance(labels := budget.get(key), dict):
            result[key] = {"matchLabels": labels} if labels else {}
    for key in _AMOUNTS:
        if isinstance(amounts := budget.get(key), dict):
            result[key] = _beta_amounts(amounts)
    return result


def _alpha_budget(budget: Any) -> Any:
    if not isinstance(budget, dict):
        return budget
    result = {key: value for key, value in budget.items() if key != "appliesTo"}
    if "appliesTo" in budget:
        result["default"] = budget["appliesTo"] == _SCOPES[True]
    for key in _SELECTORS:
        if isinstance(selector := budget.get(key), dict):
            result[key] = _alpha_labels(selector)
    for key in _AMOUNTS:
        if isinstance(amounts := budget.get(key), dict):
            result[key] = _alpha_amounts(amounts)
    return result


def _alpha_labels(selector: Json) -> Json:
    labels = selector.get("matchLabels")
    labels = labels if isinstance(labels, dict) else {}
    requirements = selector.get("matchExpressions")
    return {**labels, UNKNOWN: kept.digest(requirements)} if requirements else labels


def _beta_amounts(amounts: Json) -> Json:
    result = {key: value for key, value in amounts.items() if key not in (*_NATIVE, "resources")}
    others = amounts.get("resources")
    native = {key: amounts[key] for key in _NATIVE if key in amounts}
    resources = {**(others if isinstance(others, dict) else {}), **native}
    return {**result, **({"resources": resources} if resources else {})}


def _alpha_amounts(amounts: Json) -> Json:
    result = {key: value for key, value in amounts.items() if key != "resources"}
    found = amounts.get("resources")
    resources = found if isinstance(found, dict) else {}
    native = {key: resources[key] for key in _NATIVE if key in resources}
    others = {key: value for key, value in resources.items() if key not in _NATIVE}
    return {**result, **native, **({"resources": others} if others else {})}


def _with_usage(status: Json, usage: Any) -> Json:
    budgets = status.get("budgets")
    if not isinstance(budgets, list):
        return status
    return {**status, "budgets": [usage(one) if isinstance(one, dict) else one for one in budgets]}


def _beta_usage(one: Json) -> Json:
    result = _beta_amounts(one)
    if "wanted" in result:
        result["requested"] = result.pop("wanted")
    return result


def _alpha_usage(one: Json) -> Json:
    result = _alpha_amounts(one)
    if "requested" in result:
        result["wanted"] = result.pop("requested")
    return result
