"""A list is read object by object, and its objects lack their `managedFields`."""

from __future__ import annotations

import json

import pytest

from distributed_input_operator.kube import json_text
from distributed_input_operator.kube.json_text import decode, decode_list, encode

TEXT = 'é "quoted" \\ \u2028 🧊'


def test_objects_of_a_list_lack_their_managed_fields_and_nothing_else():
    meta = {"name": "a", "labels": {"managedFields": TEXT}, "managedFields": [{"manager": "x"}]}
    obj = {"metadata": meta, "spec": {"managedFields": [1, 2.5, None, True, (1 << 70) + 1]}}
    page = {"kind": "List", "metadata": {"continue": "token"}, "items": [obj, obj]}
    found = decode_list(json.dumps(page).encode())
    del meta["managedFields"]
    assert list(found.pop("items")) == [obj, obj]
    assert found == {"kind": "List", "metadata": {"continue": "token"}}


@pytest.mark.parametrize("items", [{}, {"items": None}, {"items": []}])
def test_a_list_may_have_no_items(items):
    """The API server returns null instead of an empty list."""
    found = decode_list(json.dumps({"code": 410, **items}).encode())
    assert (found["code"], list(found["items"])) == (410, [])


@pytest.mark.parametrize("parse", [decode, decode_list])
@pytest.mark.parametrize(
    "data", [b"", b"upstream error", b'{"items": [{]}', b"\xff", b"[]", b'"text"']
)
def test_what_is_no_object_is_a_value_error(parse, data):
    with pytest.raises(ValueError, match=r"."):
        parse(data)


def test_an_encoded_object_is_decoded_to_the_same():
    obj = {"text": TEXT, "number": (1 << 70) + 1, "list": [None, 1.5, False]}
    assert decode(encode(obj)) == obj


@pytest.mark.parametrize(
    ("version", "once"),
    [
        ((3, 11, 9), True),
        ((3, 12, 0), False),
        ((3, 12, 6), False),
        ((3, 12, 7), True),
        ((3, 13, 0), True),
    ],
)
def test_a_text_is_interned_if_python_frees_it(monkeypatch, version, once):
    monkeypatch.setattr(json_text.sys, "version_info", (*version, "final", 0))
    first, second = ("-".join(["team", str(version)]) for _ in range(2))
    assert (json_text.shared(first) is json_text.shared(second)) is once
