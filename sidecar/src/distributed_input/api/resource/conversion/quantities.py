"""Numbers of v1alpha1 as the quantities of v1beta1, and back."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from distributed_input.api.resource.scalars import quantity

_MAX_LENGTH = 32


def beta_number(number: Any) -> Any:
    """Return a number as a quantity with the same digits. What needs too many of them is 0."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return number
    exact = Decimal(repr(number))
    if not exact.is_finite():
        return number
    text = f"{exact.to_integral_value() if exact == exact.to_integral_value() else exact:f}"
    return "0" if len(text) > _MAX_LENGTH and abs(exact) < 1 else text


def alpha_number(value: Any) -> Any:
    """Return a quantity as a number."""
    try:
        number = float(quantity(str(value)))
    except (ValueError, InvalidOperation):
        return value
    return int(number) if number.is_integer() else number
