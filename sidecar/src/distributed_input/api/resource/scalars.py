"""The resource's single values: names, entry points, quantities; each with its own error."""

from __future__ import annotations

import keyword
import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

NAME_LENGTH = 52  # of a label's 63: the names of pods and services add a suffix
MIB = 1 << 20
TIB = 1 << 40

_NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
_NAMESPACE = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
_ENTRY_POINT = rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}$"
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$"
_ANY_QUANTITY = r"^([0-9]+(\.[0-9]+)?|\.[0-9]+)(m|[KMGTPE]i|[kMGTPE])?$"
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def problem(text: str, *at: str) -> PydanticCustomError:
    """An error in our own words, for a validator to raise.

    Args:
        text: what is wrong and what to do about it.
        at: where, below the value that is being validated; the value itself where empty.
    """
    return PydanticCustomError("problem", "{text}", {"text": text, "at": list(at)})


def _check_name(value: str) -> str:
    if len(value) > NAME_LENGTH:
        raise problem(
            f"{value!r} has {len(value)} characters: at most {NAME_LENGTH} leave room for "
            "the suffixes of pod and service names; shorten it"
        )
    if not re.fullmatch(_NAME, value):
        raise problem(
            f"{value!r} is no name: use lower-case letters, digits and '-', starting with a "
            "letter and ending with a letter or digit, such as 'digits'"
        )
    return value


def _check_namespace(value: str) -> str:
    if len(value) > 63 or not re.fullmatch(_NAMESPACE, value):
        raise problem(
            f"{value!r} is no namespace: use at most 63 lower-case letters, digits and '-', "
            "starting and ending with a letter or digit"
        )
    return value


def _check_config_map(value: str) -> str:
    if len(value) > 253 or not re.fullmatch(_SUBDOMAIN, value):
        raise problem(
            f"{value!r} is no name of a ConfigMap: use lower-case letters, digits, '-' and '.', "
            "such as 'digits-code'"
        )
    return value


def _check_object_name(value: str) -> str:
    if len(value) > 253 or not re.fullmatch(_SUBDOMAIN, value):
        raise problem(
            f"{value!r} is no name of a Kubernetes object: use lower-case letters, digits, '-' "
            "and '.', such as 'digits-storage'"
        )
    return value


def _check_entry_point(value: str) -> str:
    module, colon, function = value.partition(":")
    example = "write package.module:function, such as 'digits:dataset_fn'"
    if "/" in value or module.endswith(".py"):
        raise problem(f"{value!r} names a file: name the module as an import does; {example}")
    if not colon or not function:
        guess = f" (did you mean {module.rpartition('.')[0]}:{module.rpartition('.')[2]}?)"
        hint = guess if "." in module and not colon else ""
        raise problem(f"{value!r} has no function after a ':'{hint}: {example}")
    words = [*module.split("."), function]
    if not re.fullmatch(_ENTRY_POINT, value) or any(map(keyword.iskeyword, words)):
        raise problem(f"{value!r} is not a module and a function in it: {example}")
    return value


def quantity_bytes(value: str) -> int:
    """Bytes of a Kubernetes quantity such as "256Mi", "1.5G" or "1048576".

    Raises:
        ValueError: it is not a quantity, or no whole number of bytes.
    """
    match = re.fullmatch(_QUANTITY, value)
    if not match:
        binary = re.fullmatch(r"([0-9.]+)\s*([KkMGT])i?[Bb]", value)
        hint = (
            f"write {binary[1]}{binary[2].upper()}i (powers of 1024)"
            if binary
            else "write a number and Ki, Mi, Gi or Ti, such as 256Mi"
        )
        raise ValueError(f"{value!r} is no quantity of bytes: {hint}")
    size = quantity(value)
    if size != size.to_integral_value():
        raise ValueError(f"{value!r} is no whole number of bytes: use a smaller unit")
    return int(size)


def quantity(value: str) -> Decimal:
    """The number that a Kubernetes quantity stands for, of any resource: "500m" is 0.5.

    Raises:
        ValueError: it is not a quantity.
    """
    match = re.fullmatch(_ANY_QUANTITY, value)
    if not match:
        raise ValueError(f"{value!r} is no quantity: write a number, such as 2, 500m or 8Gi")
    suffix = match[3] or ""
    number = Decimal(value.removesuffix(suffix))
    return number * Decimal(2) ** _BINARY.get(suffix, 0) * Decimal(10) ** _DECIMAL.get(suffix, 0)


def _check_quantity(value: str) -> str:
    try:
        quantity(value)
    except ValueError as error:
        raise problem(str(error)) from None
    return value


def _digits_as_text(value: Any) -> Any:
    """Kubernetes takes a quantity of bytes as a number too."""
    return str(value) if type(value) is int else value


def _check_buffer(value: str) -> str:
    try:
        size = quantity_bytes(value)
    except ValueError as error:
        raise problem(str(error)) from None
    if not MIB <= size <= TIB:
        raise problem(f"{value} is out of bounds: use 1Mi to 1Ti, such as 256Mi")
    return value


def _text(pattern: str, longest: int, example: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"type": "string", "pattern": pattern, "maxLength": longest, "examples": [example]}
    )


Name = Annotated[str, AfterValidator(_check_name), _text(_NAME, NAME_LENGTH, "digits")]
Namespace = Annotated[str, AfterValidator(_check_namespace), _text(_NAMESPACE, 63, "default")]
ConfigMapName = Annotated[
    str, AfterValidator(_check_config_map), _text(_SUBDOMAIN, 253, "digits-code")
]
EntryPoint = Annotated[
    str, AfterValidator(_check_entry_point), _text(_ENTRY_POINT, 253, "digits:dataset_fn")
]
Buffer = Annotated[
    str,
    BeforeValidator(_digits_as_text),
    AfterValidator(_check_buffer),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _QUANTITY,
            "maxLength": 32,
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                {
                    "rule": "type(self) == int ? 1048576 <= self && self <= 1099511627776 : "
                    "quantity(self).compareTo(quantity('1Mi')) >= 0 && "
                    "quantity(self).compareTo(quantity('1Ti')) <= 0",
                    "message": "is out of bounds: use 1Mi to 1Ti, such as 256Mi",
                }
            ],
            "examples": ["256Mi"],
        }
    ),
]
Path = Annotated[str, Field(min_length=1)]
Image = Annotated[
    str, Field(min_length=1, max_length=512, pattern=r"^\S+$", examples=["registry/digits:1"])
]
ObjectName = Annotated[
    str, AfterValidator(_check_object_name), _text(_SUBDOMAIN, 253, "digits-storage")
]
Topology = Annotated[str, Field(pattern=r"^[1-9][0-9]*(x[1-9][0-9]*){1,2}$", examples=["2x2"])]
Quantity = Annotated[
    str,
    BeforeValidator(_digits_as_text),
    AfterValidator(_check_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": _ANY_QUANTITY,
            "maxLength": 32,  # the API server's estimate of a rule's cost needs a bound
            "x-kubernetes-int-or-string": True,
            "examples": ["500m"],
        }
    ),
]
# Mappings of any content: a CRD must say so, or the API server prunes what is in them.
Anything = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]
