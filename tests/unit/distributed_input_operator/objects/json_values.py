"""Strategies for JSON values."""

from __future__ import annotations

from hypothesis import strategies as st

keys = st.sampled_from("abc")
json_values = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(keys, json_values)
