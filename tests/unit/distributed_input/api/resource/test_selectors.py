"""Label selectors."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.selectors import LabelSelector


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
