"""Specs of rows: columns, batching, JSON."""

from __future__ import annotations

import collections
import json

import pytest

from distributed_input.api.errors import SpecError
from distributed_input.rows.elements import ElementSpec, Leaf

Point = collections.namedtuple("Point", "x y")


def columns(leaf: Leaf) -> list[tuple[str, int | None]]:
    return [(column.name, column.row_bytes) for column in leaf.columns]


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        (Leaf("", "dense", "float32", ()), [("element", 4)]),
        (Leaf("a", "dense", "bfloat16", (2, 3)), [("a", 12)]),
        (Leaf("a", "dense", "bool", (0, 3)), [("a", 0)]),
        (Leaf("a", "dense", "int16", (None, 3)), [("a:dims", 8), ("a", None)]),
        (Leaf("a", "dense", "string", (2,)), [("a:lengths", 8), ("a", None)]),
        (
            Leaf("a", "dense", "string", (None,)),
            [("a:dims", 4), ("a:lengths", None), ("a", None)],
        ),
        (Leaf("a", "ragged", "int32", (None,), 0), [("a", None)]),
        (Leaf("a", "ragged", "int32", (None, None, 2), 1), [("a:rows0", None), ("a", None)]),
        (
            Leaf("a", "ragged", "string", (None, None), 1),
            [("a:rows0", None), ("a:lengths", None), ("a", None)],
        ),
        (
            Leaf("a", "sparse", "float64", (9, None)),
            [("a:shape", 16), ("a:indices", None), ("a", None)],
        ),
        (Leaf("a", "unranked", "int16", ()), [("a:dims", None), ("a", None)]),
    ],
)
def test_columns_of_a_leaf(leaf: Leaf, expected: list[tuple[str, int | None]]) -> None:
    assert columns(leaf) == expected


def test_json_keeps_every_structure() -> None:
    structure = {"a": [0, None], "b": Point(1, (2,)), "c": {1: 3, 2: {}}}
    spec = ElementSpec(structure, tuple(Leaf(str(i), "dense", "int8", ()) for i in range(4)))
    again = ElementSpec.from_json(spec.to_json())
    assert again == spec
    assert again.structure["b"]._fields == ("x", "y")
    assert again.flatten({"a": [1, None], "b": Point(2, (3,)), "c": {1: 4, 2: {}}}) == [1, 2, 3, 4]


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"v":1,"s":0,"l":[["a","dense","string"]]}'])
def test_json_that_is_not_a_spec_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not an element spec"):
        ElementSpec.from_json(text)


def test_the_error_for_another_version_says_what_to_do() -> None:
    with pytest.raises(SpecError, match="same release"):
        ElementSpec.from_json('{"v":99}')


def test_only_a_spec_with_an_unranked_leaf_needs_version_2() -> None:
    """Releases that cannot read such rows then name the version, and what to do."""
    for kind, version in (("dense", 1), ("ragged", 1), ("sparse", 1), ("unranked", 2)):
        shape = () if kind == "unranked" else (None,)
        spec = ElementSpec(0, (Leaf("", kind, "int8", shape),))
        assert json.loads(spec.to_json())["v"] == version


@pytest.mark.parametrize(
    ("batch", "row"),
    [
        (Leaf("a", "dense", "int8", (None, 3)), Leaf("a", "dense", "int8", (3,))),
        (Leaf("a", "sparse", "int8", (4, None)), Leaf("a", "sparse", "int8", (None,))),
        (
            Leaf("a", "ragged", "int8", (None, None, None), 2, "int32"),
            Leaf("a", "ragged", "int8", (None, None), 1, "int32"),
        ),
        (
            Leaf("a", "ragged", "int8", (None, None), 1),
            Leaf("a", "ragged", "int8", (None,), 0),
        ),
        (Leaf("a", "unranked", "int8", ()), Leaf("a", "unranked", "int8", ())),
    ],
)
def test_unbatched_removes_the_leading_dimension(batch: Leaf, row: Leaf) -> None:
    assert ElementSpec(0, (batch,)).unbatched() == ElementSpec(0, (row,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "cubic", "int8", ()), "unknown kind"),
        (("a", "dense", "variant", ()), "variant, which cannot be sent"),
        (("a", "ragged", "int8", (None,), 1), "ragged rank 1 does not fit"),
        (("a", "ragged", "int8", (None, None), 0), "must be known"),
    ],
)
def test_a_leaf_that_cannot_be_sent_is_named(arguments: tuple, message: str) -> None:
    with pytest.raises(SpecError, match=message) as caught:
        Leaf(*arguments)
    assert "component 'a'" in str(caught.value)


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ({"a": 1}, "keys \\['a', 'b'\\], found \\['a'\\]"),
        ([1, 2], "found list"),
        ({"a": 1, "b": (1, 2)}, "'b' must be a tuple of 1 items, found 2 items"),
    ],
)
def test_an_element_of_another_structure_is_refused(element: object, message: str) -> None:
    spec = ElementSpec({"a": 0, "b": (1,)}, (Leaf("a", "dense", "int8", ()),) * 2)
    with pytest.raises(SpecError, match=message):
        spec.flatten(element)


@pytest.mark.parametrize(
    "text",
    [
        '{"v":1,"s":' + '{"t":[' * 5000 + "]}" * 5000 + ',"l":[]}',
        '{"v":1,"s":1,"l":[["a","dense","int8",[]]]}',
        '{"v":1,"s":-1,"l":[["a","dense","int8",[]]]}',
        '{"v":1,"s":0,"l":[["a","dense","int8",[-1]]]}',
        '{"v":1,"s":0,"l":[["a","dense","int8",["2"]]]}',
    ],
    ids=["deep", "no such leaf", "negative leaf", "negative size", "text as size"],
)
def test_a_spec_that_fails_only_when_it_is_used_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="not an element spec"):
        ElementSpec.from_json(text)
