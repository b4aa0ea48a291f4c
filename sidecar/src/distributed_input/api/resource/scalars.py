"""The types of single values: names, entry points and quantities, each with its own message."""

from __future__ import annotations

import functools
import keyword
import math
import re
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

NAME_LENGTH = 52
"""Maximum length of an input's name. A label has at most 63 characters, and names of pods and
services add a suffix."""
MIB = 1 << 20

_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
_NAMESPACE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_ENTRY_POINT = rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}$"
_ANY_QUANTITY = r"^([0-9]+(\.[0-9]+)?|\.[0-9]+)(m|[KMGTPE]i|[kMGTPE])?$"
_QUANTITY_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": _ANY_QUANTITY,
    "maxLength": 32,  # bounds the API server's cost estimate of CEL rules
    "x-kubernetes-int-or-string": True,
}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def problem(text: str, *at: str) -> PydanticCustomError:
    """Return an error with this message, for a validator to raise.

    `at` is the path of the field below the validated value.
    """
    return PydanticCustomError("problem", "{text}", {"text": text, "at": list(at)})


def _check_name(value: str) -> str:
    if len(value) > NAME_LENGTH:
        raise problem(
            f"{value!r} has {len(value)} characters: use at most {NAME_LENGTH}, because names of "
            "pods and services add a suffix"
        )
    if not re.fullmatch(_NAME, value):
        raise problem(
            f"{value!r} is not a valid name: use lower-case letters, digits and '-', starting "
            "with a letter and ending with a letter or digit, for example 'digits'"
        )
    return value


def _matches(pattern: str, max_length: int, error: str) -> AfterValidator:
    """Return a validator of text. `error` follows an invalid value in the message."""

    def check(value: str) -> str:
        if len(value) > max_length or not re.fullmatch(pattern, value):
            raise problem(f"{value!r} {error}")
        return value

    return AfterValidator(check)


def _check_entry_point(value: str) -> str:
    module, colon, function = value.partition(":")
    example = "use package.module:function, for example 'digits:dataset_fn'"
    if "/" in value or module.endswith(".py"):
        raise problem(f"{value!r} is a file, not a module: {example}")
    if not colon or not function:
        guess = f" (did you mean {module.rpartition('.')[0]}:{module.rpartition('.')[2]}?)"
        hint = guess if "." in module and not colon else ""
        raise problem(f"{value!r} has no function after ':'{hint}: {example}")
    words = [*module.split("."), function]
    if not re.fullmatch(_ENTRY_POINT, value) or any(map(keyword.iskeyword, words)):
        raise problem(f"{value!r} is not a module and a function: {example}")
    return value


def quantity_bytes(value: str) -> int:
    """Return the bytes of a Kubernetes quantity such as "256Mi", "1.5G" or "1048576".

    As in Kubernetes, a part of a byte counts as a byte.

    Raises:
        ValueError: the text is not a quantity.
    """
    if not re.fullmatch(_ANY_QUANTITY, value):
        binary = re.fullmatch(r"([0-9.]+)\s*([KkMGT])i?[Bb]", value)
        hint = (
            f"use {binary[1]}{binary[2].upper()}i (powers of 1024)"
            if binary
            else "use a number with Ki, Mi, Gi or Ti, for example 256Mi"
        )
        raise ValueError(f"{value!r} is not a quantity of bytes: {hint}")
    return int(quantity(value).to_integral_value(ROUND_CEILING))


@functools.lru_cache(maxsize=1024)  # All inputs have the same few.
def quantity(value: str) -> Decimal:
    """Return the value of a Kubernetes quantity of any resource: "500m" is 0.5.

    Raises:
        ValueError: the text is not a quantity.
    """
    match = re.fullmatch(_ANY_QUANTITY, value)
    if not match:
        raise ValueError(f"{value!r} is not a quantity: use a number such as 2, 500m or 8Gi")
    suffix = match[3] or ""
    number = Decimal(value.removesuffix(suffix))
    return number * Decimal(2) ** _BINARY.get(suffix, 0) * Decimal(10) ** _DECIMAL.get(suffix, 0)


def cel_number(path: str) -> str:
    """Return a CEL expression for the quantity in a field that is an integer or a string.

    It is a floating-point number, which is exact enough for comparisons. A quantity of `string` of
    the field, or of its integer, costs too much in some versions of Kubernetes.
    """
    return f"(type({path}) in [int] ? double({path}) : quantity({path}).asApproximateFloat())"


def _parsed_by(parse: Callable[[str], Any]) -> AfterValidator:
    """Return a validator of text that a function must be able to parse."""

    def check(value: str) -> str:
        try:
            parse(value)
        except ValueError as error:
            raise problem(str(error)) from None
        return value

    return AfterValidator(check)


def _int_to_text(value: Any) -> Any:
    """Convert an integer to text: Kubernetes accepts both as a quantity."""
    return str(value) if type(value) is int else value


def _between(least: str, most: str, example: str = "500m") -> AfterValidator:
    def check(value: str) -> str:
        if not quantity(least) <= quantity(value) <= quantity(most):
            raise problem(f"{value} {_range(least, most, example)}")
        return value

    return AfterValidator(check)


def _bounds(least: str, most: str, example: str = "500m") -> WithJsonSchema:
    """Return the schema of a quantity, with a rule.

    Kubernetes 1.29 estimates the cost of `type(self) == int` by the largest request, and refuses a
    map with such a rule. It does not do this for `in`.
    """
    low, high = math.ceil(quantity(least)), math.floor(quantity(most))
    rule = (
        f"type(self) in [int] ? {low} <= self && self <= {high} : "
        f"quantity(self).compareTo(quantity('{least}')) >= 0 && "
        f"quantity(self).compareTo(quantity('{most}')) <= 0"
    )
    validations = [{"rule": rule, "message": _range(least, most, example)}]
    return WithJsonSchema(
        {**_QUANTITY_SCHEMA, "x-kubernetes-validations": validations, "examples": [example]}
    )


def _range(least: str, most: str, example: str) -> str:
    return f"is out of range: use {least} to {most}, for example {example}"


def _text_schema(pattern: str, max_length: int, example: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"type": "string", "pattern": pattern, "maxLength": max_length, "examples": [example]}
    )


Name = Annotated[str, AfterValidator(_check_name), _text_schema(_NAME, NAME_LENGTH, "digits")]
Namespace = Annotated[
    str,
    _matches(
        _NAMESPACE,
        63,
        "is not a valid namespace: use at most 63 lower-case letters, digits and '-', starting and "
        "ending with a letter or digit",
    ),
    _text_schema(_NAMESPACE, 63, "default"),
]
ConfigMapName = Annotated[
    str,
    _matches(
        _SUBDOMAIN,
        253,
        "is not a valid ConfigMap name: use lower-case letters, digits, '-' and '.', for example "
        "'digits-code'",
    ),
    _text_schema(_SUBDOMAIN, 253, "digits-code"),
]
EntryPoint = Annotated[
    str, AfterValidator(_check_entry_point), _text_schema(_ENTRY_POINT, 253, "digits:dataset_fn")
]
OperatorClass = Annotated[
    str,
    Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=40, examples=["canary"]),
]
DOMAIN_PATH = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
"""A name with the domain of its owner, such as nvidia.com/gpu."""
PriorityClassName = Annotated[str, Field(pattern=_NAMESPACE, max_length=63, examples=["release"])]
ModuleName = Annotated[
    str,
    Field(
        pattern=rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*$", max_length=253, examples=["vision.datasets"]
    ),
]
Path = Annotated[str, Field(min_length=1)]
Image = Annotated[
    str, Field(min_length=1, max_length=512, pattern=r"^\S+$", examples=["registry/digits:1"])
]
ObjectName = Annotated[
    str,
    _matches(
        _SUBDOMAIN,
        253,
        "is not a valid name of a Kubernetes object: use lower-case letters, digits, '-' and '.', "
        "for example 'digits-storage'",
    ),
    _text_schema(_SUBDOMAIN, 253, "digits-storage"),
]
Quantity = Annotated[
    str,
    BeforeValidator(_int_to_text),
    _parsed_by(quantity),
    WithJsonSchema({**_QUANTITY_SCHEMA, "examples": ["500m"]}),
]
Buffer = Annotated[
    str,
    BeforeValidator(_int_to_text),
    _parsed_by(quantity_bytes),
    _between("1Mi", "1Ti", "256Mi"),
    _bounds("1Mi", "1Ti", "256Mi"),
]
Weight = Annotated[Quantity, _between("1m", "1000"), _bounds("1m", "1000")]
Cost = Annotated[Quantity, _between("0", "1M"), _bounds("0", "1M")]
"""The API conventions exclude floating point."""
Anything = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
"""A mapping with any content. Without the schema's extension, the API server would remove it."""
