"""Structures survive flattening and JSON, and errors name the component."""

from __future__ import annotations

import collections
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.rows import structure

Point = collections.namedtuple("Point", "x y")

_KEYS = st.text("abc/", max_size=3) | st.just("")
VALUES = st.recursive(
    st.just("leaf") | st.none(),
    lambda inner: (
        st.dictionaries(_KEYS, inner, max_size=3)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.tuples(inner, inner).map(lambda pair: Point(*pair))
    ),
    max_leaves=8,
)


def structure_of(value: Any) -> Any:
    numbers = itertools.count()
    return structure.build(value, lambda path, leaf: next(numbers))


@given(VALUES)
def test_flatten_and_unflatten_are_inverse(value: Any) -> None:
    built = structure_of(value)
    leaves = structure.flatten(built, value)
    assert leaves == ["leaf"] * len(leaves)
    assert structure.unflatten(built, leaves.__getitem__) == value
    numbers = structure.flatten(built, structure.unflatten(built, lambda i: i))
    assert numbers == list(range(len(leaves)))


@given(VALUES)
def test_a_structure_survives_json(value: Any) -> None:
    built = structure_of(value)
    again = structure.from_plain(json.loads(json.dumps(structure.to_plain(built))))
    assert again == built
    assert structure.to_plain(again) == structure.to_plain(built)


def test_paths_name_the_leaves() -> None:
    paths: list[str] = []

    def record(path: str, leaf: Any) -> int:
        paths.append(path)
        return len(paths) - 1

    structure.build({"a": (1, [2]), "p": Point(3, 4)}, record)
    assert paths == ["a/0", "a/1/0", "p/x", "p/y"]


def test_a_list_can_be_one_leaf() -> None:
    assert structure.build({"a": [1, 2]}, lambda path, leaf: 0, list_is_leaf=True) == {"a": 0}


@pytest.mark.parametrize("keys", [{1: 0, "a": 0}, {1.5: 0}, {(1,): 0}])
def test_other_keys_are_refused(keys: dict) -> None:
    with pytest.raises(SpecError, match="component 'x': keys of a dict"):
        structure_of({"x": keys})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": 1}, r"the element must be a dict with keys \['a', 'b'\], found \['a'\]"),
        ({"a": 1, "b": {"c": 1}}, "'b' must be a tuple of 2 items, found dict"),
        ({"a": 1, "b": (1, 2)}, "component 'b/1' is int, expected None"),
    ],
)
def test_another_structure_is_refused(value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        structure.flatten({"a": 0, "b": (1, None)}, value)


def test_a_namedtuple_with_other_fields_is_refused() -> None:
    swapped = collections.namedtuple("swapped", "y x")
    with pytest.raises(SpecError, match="must be a namedtuple of x, y, found y, x"):
        structure.flatten(Point(0, 1), swapped(1, 2))
    assert structure.flatten(Point(0, 1), (1, 2)) == [1, 2]
