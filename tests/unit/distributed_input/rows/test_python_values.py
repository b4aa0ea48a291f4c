"""Python numbers become arrays of a leaf's type, or an error, and never another value."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.rows.elements import Leaf
from distributed_input.rows.python_values import to_array

FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = ("bool", "int8", "uint8", "int32", "int64", "uint64", "int4", *FLOATS, "complex64")
scalars = st.one_of(
    st.booleans(),
    st.none(),
    st.integers(-(1 << 70), 1 << 70),
    st.integers(-300, 300),
    st.floats(),
    st.sampled_from([9.99, "1", b"1", 1j]),
)
values = st.one_of(scalars, st.lists(scalars, max_size=3), st.lists(st.lists(scalars), max_size=2))


def leaf_of(dtype: str) -> Leaf:
    return Leaf("value", "dense", dtype, ())


def flat(value: Any) -> list[Any]:
    return [item for one in value for item in flat(one)] if isinstance(value, list) else [value]


def is_same(before: Any, after: Any, dtype: str) -> bool:
    """Return whether a value is unchanged, up to the precision of a float."""
    if isinstance(before, bool) or isinstance(after, bool):
        return before is after
    if isinstance(before, int) or dtype not in FLOATS:
        return bool(before == after) or (before != before and after != after)
    return math.isnan(before) == math.isnan(after) and math.isinf(before) == math.isinf(after)


@given(values, st.sampled_from(TYPES))
def test_a_value_is_converted_without_a_change_or_refused(value: Any, dtype: str) -> None:
    try:
        array = to_array(leaf_of(dtype), value)
    except SpecError:
        return
    assert array.dtype.name == dtype
    if dtype == "complex64":
        return  # of the precision of float32
    found = flat(array.tolist())
    if dtype in ("bfloat16", "int4"):
        found = [float(item) if dtype == "bfloat16" else int(item) for item in found]
    assert len(found) == len(flat(value))
    assert all(is_same(*pair, dtype) for pair in zip(flat(value), found, strict=True))


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("float32", 10, np.float32(10)),
        ("float32", 0.1, np.float32(0.1)),
        ("float64", [1, 2.5], np.array([1.0, 2.5])),
        ("float32", [0.1, 2], np.array([0.1, 2], np.float32)),
        ("uint8", [[1], [255]], np.array([[1], [255]], np.uint8)),
        ("int64", [], np.zeros(0, np.int64)),
        ("complex64", 1.5, np.complex64(1.5)),
        ("float4_e2m1fn", [-6, 1.4], np.array([-6, 1.5], ml_dtypes.float4_e2m1fn)),
    ],
)
def test_a_value_that_fits_is_converted(dtype: str, value: Any, expected: Any) -> None:
    array = to_array(leaf_of(dtype), value)
    assert array.dtype == expected.dtype
    assert array.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int64", 9.99, r"is float \(9.99\), expected int64"),
        ("int64", 10.0, r"is float \(10.0\), expected int64"),
        ("int64", True, r"is bool \(True\), expected int64"),
        ("int64", [True, 2], "is a list of bool and int, expected int64"),
        ("int64", [[1], [2, 3]], "is not an array of int64"),
        ("int64", 1 << 63, "is 9223372036854775808, which int64 cannot represent"),
        ("float32", None, r"is NoneType \(None\), expected float32"),
        ("float32", [None, 1.5], "is a list of NoneType and float, expected float32"),
        ("float32", "1.5", r"is str \('1.5'\), expected float32"),
        ("float32", 1e300, "is 1e\\+300, which float32 cannot represent"),
        ("float32", (1 << 24) + 1, "is 16777217, which float32 cannot represent"),
        ("float64", [1, (1 << 53) + 1], "is 9007199254740993, which float64 cannot represent"),
        ("float32", [0.5, (1 << 24) + 1], "is 16777217, which float32 cannot represent"),
        ("float64", ((1 << 60) + 1, 0.5), "is 1152921504606846977, which float64 cannot"),
        ("bool", 2, r"is int \(2\), expected bool"),
        ("uint64", -1, "is -1, which uint64 cannot represent"),
        ("int32", 1 << 40, "is 1099511627776, which int32 cannot represent"),
        ("float4_e2m1fn", 9, "is 9, which float4_e2m1fn cannot represent"),
        ("float4_e2m1fn", [0.5, -9.5], "is -9.5, which float4_e2m1fn cannot represent"),
        ("float4_e2m1fn", math.nan, "is nan, which float4_e2m1fn cannot represent"),
    ],
)
def test_a_value_that_would_change_is_refused(dtype: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        to_array(leaf_of(dtype), value)
