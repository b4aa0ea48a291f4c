"""When an object is as wanted, and how a user's template goes over ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.objects.matching import contains
from distributed_input_operator.objects.templates import merged

keys = st.sampled_from("abc")
json_values = st.recursive(
    st.booleans() | st.integers(-9, 9) | st.text("xyz", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_everything_is_as_wanted_where_it_is_the_same(value):
    assert contains(value, value)


@given(st.dictionaries(keys, json_values), json_values)
def test_what_others_add_does_not_count(value, added):
    assert contains({**value, "theirs": added}, value)


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"cpu": "1"}, {"cpu": "1000m"}),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "A", "value": ""}]}),
        (
            {"c": [{"name": "injected"}, {"name": "ours", "x": 1, "y": 2}]},
            {"c": [{"name": "ours", "x": 1}]},
        ),
        ({}, {"tolerations": [], "paused": False}),
    ],
)
def test_the_api_servers_way_to_say_the_same(live, wanted):
    assert contains(live, wanted)


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"replicas": 3}, {"replicas": 0}),
        ({"args": ["a", "b"]}, {"args": ["a"]}),
        ({"args": ["b", "a"]}, {"args": ["a", "b"]}),
        ({"c": [{"name": "ours", "image": "x"}]}, {"c": [{"name": "ours", "image": "y"}]}),
        ({"c": []}, {"c": [{"name": "ours"}]}),
        ({"suspended": True}, {"suspended": False}),
        ({"x": "a"}, {"x": "b"}),
        (None, {"x": 1}),
    ],
)
def test_a_difference_is_seen(live, wanted):
    assert not contains(live, wanted)


def test_a_template_goes_over_ours_by_name_and_null_takes_away():
    ours = {"containers": [{"name": "worker", "image": "a", "tty": True}], "x": {"y": 1}, "z": 1}
    users = {
        "containers": [{"name": "worker", "image": "b"}, {"name": "proxy"}],
        "x": {"w": [1]},
        "z": None,
    }
    assert merged(ours, users) == {
        "containers": [{"name": "worker", "image": "b", "tty": True}, {"name": "proxy"}],
        "x": {"y": 1, "w": [1]},
    }


@given(st.dictionaries(keys, json_values), st.dictionaries(keys, json_values))
def test_merging_twice_is_merging_once(ours, users):
    once = merged(ours, users)
    assert merged(once, users) == once
    assert merged(ours, {}) == ours
