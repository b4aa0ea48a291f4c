"""The sources of a mixture and their weights."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from distributed_input.api.resource.base import Section
from distributed_input.api.resource.scalars import problem

MOST_WEIGHT = 1e9
_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


def _check_weights(weights: Any) -> Any:
    """Raise an error about weights that are no numbers. Other types get the error of the model."""
    if weights == {}:
        raise problem("has no source: add a name and a weight, for example {books: 0.3, web: 0.7}")
    for name, weight in weights.items() if isinstance(weights, dict) else ():
        if type(weight) not in (int, float) or not 0 <= weight <= MOST_WEIGHT:
            raise problem(
                f"must be a number from 0 to {MOST_WEIGHT:.0f}, for example 0.3, not {weight!r}",
                str(name),
            )
    if isinstance(weights, dict) and not math.fsum(weights.values()):
        raise problem("all weights are 0: set one of them above 0")
    return weights


Weights = Annotated[
    dict[str, Annotated[float, Field(ge=0, le=MOST_WEIGHT)]],
    Field(min_length=1, max_length=64),
    BeforeValidator(_check_weights),
]


class WeightsChange(Section):
    """Other weights from a step on."""

    step: int = Field(ge=1, le=2**53, examples=[10_000])
    """Step of the epoch from which the weights are used; the first step is 0. Required."""
    weights: Weights = Field(examples=[{"books": 0.5, "web": 0.5}])
    """Weight of each source, by name. Required."""


class MixtureSpec(Section):
    """The sources of the rows, and how many rows each of them gives."""

    weights: Weights = Field(examples=[{"books": 0.3, "web": 0.7}])
    """Weight of each source, by name. The rows of a step have the proportion of the weights.
    Workers call the dataset function for the splits of each source, with its name in
    `context.source`. Each source has spec.numSplits splits. A source with weight 0 gives no rows
    before a change of the weights. Required."""
    schedule: Annotated[list[WeightsChange], Field(max_length=64)] = Field(
        default=[], examples=[[{"step": 10_000, "weights": {"books": 0.5, "web": 0.5}}]]
    )
    """Changes of the weights, by increasing step. Default: none."""
    on_exhausted: Literal["Repeat", "Stop", "Drop"] = "Repeat"
    """Reaction if a source has no more rows for a partition. Repeat: its next epoch begins there,
    with another shuffle; the epoch of the input never ends. Stop: the epoch of the input ends with
    the last whole step. Drop: the other sources go on in the proportion of their weights. Default:
    Repeat."""

    @model_validator(mode="after")
    def _check_names(self) -> MixtureSpec:
        for name in self.weights:
            if not _NAME.fullmatch(name):
                raise problem(
                    f"{name!r}: the name of a source has 1 to 63 letters, digits, '-', '_' and "
                    "'.', and starts and ends with a letter or digit",
                    "weights",
                )
        before = 0
        for change in self.schedule:
            if change.step <= before:
                raise problem(
                    f"step {change.step} does not follow step {before}: sort the changes by step",
                    "schedule",
                )
            before = change.step
            if change.weights.keys() != self.weights.keys():
                raise problem(
                    f"step {change.step} has sources {', '.join(sorted(change.weights))}, and "
                    f"weights has {', '.join(sorted(self.weights))}: use the same names. A source "
                    "with weight 0 gives no rows",
                    "schedule",
                )
        return self
