"""Numbers of v1beta1 as quantities with bounds. The API conventions exclude floating point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from distributed_input.api.resource.scalars import (
    ANY_QUANTITY,
    int_to_text,
    problem,
    quantity,
)


def _between(least: str, most: str) -> Callable[[str], str]:
    low, high = quantity(least), quantity(most)

    def check(value: str) -> str:
        try:
            number = quantity(value)
        except ValueError as error:
            raise problem(str(error)) from None
        if not low <= number <= high:
            raise problem(f"{value} {_message(least, most)}")
        return value

    return check


def _schema(least: str, most: str, integers: str) -> WithJsonSchema:
    """Return a schema with a rule. `integers`: the bounds of an integer, as CEL.

    Kubernetes 1.29 estimates the cost of `type(self) == int` by the largest request, and refuses a
    map with such a rule. It does not do this for `in`.
    """
    return WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": ANY_QUANTITY,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) in [int] ? {integers} : "
                    f"quantity(self).compareTo(quantity('{least}')) >= 0 && "
                    f"quantity(self).compareTo(quantity('{most}')) <= 0",
                    "message": _message(least, most),
                }
            ],
            "examples": ["500m"],
        }
    )


def _message(least: str, most: str) -> str:
    return f"is out of range: use {least} to {most}, for example 500m"


Weight = Annotated[
    str,
    BeforeValidator(int_to_text),
    AfterValidator(_between("1m", "1000")),
    _schema("1m", "1000", "1 <= self && self <= 1000"),
]
Cost = Annotated[
    str,
    BeforeValidator(int_to_text),
    AfterValidator(_between("0", "1M")),
    _schema("0", "1M", "0 <= self && self <= 1000000"),
]
