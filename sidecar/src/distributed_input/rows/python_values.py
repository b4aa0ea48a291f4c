"""Conversion of Python numbers to arrays, without a change of their values.

The type of a component is that of the dataset's spec, which may come from one row only. Numpy would
convert every later value to this type: 9.99 to 9, None to NaN, "1" to 1 and 2 to True.
"""

from __future__ import annotations

import reprlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from distributed_input.api.errors import SpecError
from distributed_input.rows.elements import Leaf, numpy_dtype

_Array: TypeAlias = npt.NDArray[Any]

_FAST: dict[str, tuple[tuple[type, ...], int]] = {
    "int64": ((int,), (1 << 63) - 1),
    "float32": ((float, int), 1 << 24),
    "float64": ((float, int), 1 << 53),
}
"""For each of these types: types of Python scalars, and the integer up to which all are exact."""


def to_array(leaf: Leaf, value: Any) -> _Array:
    """Return a Python number, or nested lists of numbers, as an array of the leaf's type.

    Integers become floats if they are exact. Floats are rounded to the leaf's precision, as
    TensorFlow does.

    Raises:
        SpecError: the type cannot represent a value. Names the component and both types.
    """
    dtype = numpy_dtype(leaf.dtype)
    types, most = _FAST.get(leaf.dtype, ((), 0))
    if type(value) in types and -most <= value <= most:
        return np.asarray(value, dtype)  # the checks below take 20 times as long
    try:
        natural = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise SpecError(f"{leaf.label} is not an array of {leaf.dtype}: {error}") from error
    if natural.size and (natural.dtype.kind not in _kinds(leaf.dtype) or _mixes(natural, value)):
        raise SpecError(f"{leaf.label} is {_type_of(value)}, expected {leaf.dtype}")
    if natural.dtype.kind in "fc" and isinstance(value, (list, tuple)) and int in _types(value):
        natural = np.asarray(value, object)  # numpy has rounded its integers
    with np.errstate(over="ignore", invalid="ignore"):
        array: _Array = natural.astype(dtype)
        exact = np.asarray(_is_exact(natural, array))
    if not exact.all():
        lost = reprlib.repr(natural[~exact].tolist()[0])
        raise SpecError(f"{leaf.label} is {lost}, which {leaf.dtype} cannot represent")
    return array


def _kinds(dtype: str) -> str:
    """Return the kinds of numpy types whose values may become values of a type."""
    if dtype == "bool":
        return "b"
    if dtype.startswith(("int", "uint")):
        return "iu"
    return "iufc" if dtype.startswith("complex") else "iuf"


def _is_exact(natural: _Array, array: _Array) -> Any:
    if natural.dtype == object:
        pairs = zip(natural.flat, array.flat, strict=True)
        found = [bool(_is_exact(np.asarray(before), np.asarray(after))) for before, after in pairs]
        return np.reshape(found, natural.shape)
    if natural.dtype.kind not in "iu":  # a float that is rounded must not become infinite
        # A type without infinity and NaN (float4_e2m1fn) has its largest number in their place.
        largest = np.asarray(np.inf).astype(array.dtype).real.astype(np.float64)
        return (np.isfinite(array) == np.isfinite(natural)) & ~(np.abs(natural) > largest)
    if array.dtype.kind in "iu":
        return array == natural
    return array.real.astype(natural.dtype) == natural


def _mixes(natural: _Array, value: Any) -> bool:
    """Return whether a list has booleans among its numbers, which numpy would convert."""
    is_list = isinstance(value, (list, tuple))
    return is_list and natural.dtype.kind != "b" and bool in _types(value)


def _types(values: Any) -> set[type]:
    """Return the types of the items of nested lists."""
    found = set(map(type, values))
    for nested in found & {list, tuple}:
        found.remove(nested)
        found.update(*(_types(one) for one in values if type(one) is nested))
    return found


def _type_of(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"a list of {' and '.join(sorted(one.__name__ for one in _types(value)))}"
    return f"{type(value).__name__} ({reprlib.repr(value)})"
