"""Entry points that return any Python iterable of nested numpy values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from distributed_input.api.errors import SpecError
from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata import type_specs


def spec_of(elements: Iterable[Any]) -> ElementSpec:
    """The spec of an iterable's elements, as its first one shows it.

    Raises:
        SpecError: it has none, or one that is no nested structure of arrays.
    """
    for element in elements:
        return type_specs.from_values(element)
    raise SpecError(
        "the entry point's first split has no elements, so nothing tells what they look like: "
        "return a tf.data.Dataset, which knows, or let split 0 have some"
    )
