"""Element specs of splits: infer the spec of an iterable, and compare a split's spec."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import SpecError
from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata import type_specs


def spec_of_iterable(elements: Iterable[Any], function: object = None) -> ElementSpec:
    """Return the spec of a Python iterable's elements.

    Args:
        elements: the iterable. Its first element has the spec, unless it or the function has the
            attribute `element_spec`, with `tf.TypeSpec`s as in `tf.data.Dataset.element_spec`.
        function: the function that returned the iterable.

    Raises:
        SpecError: there are no elements, or the first one is not a nested structure of arrays.
    """
    for owner in (elements, function):
        declared = getattr(owner, "element_spec", None)
        if declared is not None:
            return type_specs.from_tf(declared)
    for element in elements:
        return type_specs.from_values(element)
    raise SpecError(
        "the entry point's first split has no elements, so their spec is unknown. Return a "
        "tf.data.Dataset, which has a spec, set `element_spec` on the entry point's function, or "
        "return at least one element for split 0."
    )


def check_spec(dataset: tf.data.Dataset, expected: ElementSpec, split: int) -> None:
    """Check that the elements of a split have the job's spec.

    Args:
        dataset: the dataset of the split.
        expected: spec of the job's elements.
        split: number of the split.

    Raises:
        SpecError: the specs differ. Names the component.
    """
    found = type_specs.from_tf(dataset.element_spec)
    if found == expected:
        return
    raise SpecError(
        f"the elements of split {split} are not those of the job: "
        f"{_difference(found, expected)}. Every split must have the same element_spec."
    )


def _difference(found: ElementSpec, expected: ElementSpec) -> str:
    if found.structure != expected.structure:
        return f"structure {found.structure} instead of {expected.structure}"
    for ours, theirs in zip(found.leaves, expected.leaves, strict=True):
        if ours != theirs:
            return (
                f"{ours.label} is {ours.kind} {ours.dtype} {ours.shape} instead of "
                f"{theirs.kind} {theirs.dtype} {theirs.shape}"
            )
    return "other components"
