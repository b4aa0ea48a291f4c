"""Label selectors, as in Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel
from distributed_input.api.resource.scalars import problem

_WITH_VALUES = ("In", "NotIn")


class LabelRequirement(Section):
    """A requirement on one label."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                "operators In and NotIn need values, and Exists and DoesNotExist exclude them: "
                "correct operator, or add or remove values",
            )
        )
    )

    key: Annotated[str, Field(min_length=1, max_length=317)] = Field(
        description="Key of the label. Required.", examples=["team"]
    )
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"] = Field(
        description="In: the label has one of the values. NotIn: it has none of them, or does not "
        "exist. Exists and DoesNotExist: whether it exists, with any value. Required."
    )
    values: list[Annotated[str, Field(max_length=63)]] = Field(
        default=[], description="Values of the label. Required for In and NotIn."
    )

    @model_validator(mode="after")
    def _check_values(self) -> LabelRequirement:
        if (self.operator in _WITH_VALUES) != bool(self.values):
            needs = "needs" if self.operator in _WITH_VALUES else "excludes"
            raise problem(f"operator {self.operator} {needs} values", "values")
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
        return self.key not in labels


class LabelSelector(Section):
    """Labels of objects. All requirements must be met. Without any, all objects match."""

    match_labels: dict[str, str] = Field(
        default={},
        description="Labels with their values. Default: any labels.",
        examples=[{"team": "vision"}],
    )
    match_expressions: list[LabelRequirement] = Field(
        default=[], description="Requirements on labels. Default: none."
    )

    @property
    def is_empty(self) -> bool:
        """Whether all objects match."""
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object matches. With unknown labels (None), it may."""
        return labels is None or (
            all(labels.get(key) == value for key, value in self.match_labels.items())
            and all(one.matches(labels) for one in self.match_expressions)
        )
