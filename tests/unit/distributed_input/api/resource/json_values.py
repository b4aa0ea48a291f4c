"""Strategies for JSON values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from distributed_input.api.resource.merge import LIST_KEYS

keys = st.sampled_from("abc")
json_values = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(keys, json_values)
list_fields = st.sampled_from(sorted(LIST_KEYS))
"""The lists that have keys, as in `list_keys`."""


def elements(field: str, max_size: int = 4) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Return lists of a field whose elements have its keys, which may repeat, and other fields."""
    of_keys = {key: st.sampled_from("xy") for key in LIST_KEYS[field]}
    others = {"name": st.sampled_from("xy"), "value": st.integers(1, 2)}
    optional = {key: one for key, one in others.items() if key not in of_keys}
    return st.lists(st.fixed_dictionaries(of_keys, optional=optional), max_size=max_size)


@st.composite
def keyed_objects(draw: st.DrawFn) -> dict[str, Any]:
    """Return an object with lists that have keys, and with other fields."""
    result: dict[str, Any] = dict(draw(json_objects))
    for field in draw(st.lists(list_fields, max_size=3)):
        parent, _, name = field.rpartition(".")
        inner = {name: draw(elements(field))}
        if parent:
            result[parent] = {**result.get(parent, {}), **inner} if parent == "spec" else [inner]
        else:
            result |= inner
    return result
