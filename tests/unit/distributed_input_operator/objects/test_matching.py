"""Comparison of an object in the cluster with its desired manifest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.resource.merge import LIST_KEYS
from distributed_input_operator.objects.matching import contains
from tests.unit.distributed_input.api.resource.json_values import (
    elements,
    json_objects,
    json_values,
    keyed_objects,
    list_fields,
)


@given(json_values | keyed_objects())
def test_an_object_with_exactly_our_fields_is_up_to_date(value):
    assert contains(value, value)


@given(list_fields.flatmap(lambda field: st.tuples(st.just(field), elements(field))), st.data())
def test_others_may_add_elements_with_other_keys_in_any_place(drawn, data):
    field, ours = drawn
    parent, _, name = field.rpartition(".")
    added = {**dict.fromkeys(LIST_KEYS[field], "z"), "value": 3}
    place = data.draw(st.integers(0, len(ours)))
    live = [*ours[:place], added, *ours[place:]]
    assert contains({name: live}, {name: ours}, parent)
    assert not contains({name: ours}, {name: live}, parent)


@given(list_fields.flatmap(lambda field: st.tuples(st.just(field), elements(field))), st.data())
def test_a_changed_field_of_any_element_is_seen(drawn, data):
    field, ours = drawn
    parent, _, name = field.rpartition(".")
    changed = data.draw(st.integers(0, len(ours) - 1)) if ours else None
    live = [{**one, "value": 9} if place == changed else one for place, one in enumerate(ours)]
    ours = [{"value": 1, **one} for one in ours]
    live = [{"value": 1, **one} for one in live]
    assert contains({name: live}, {name: ours}, parent) == (changed is None)


@given(json_objects, json_values)
def test_fields_that_others_add_are_ignored(value, added):
    assert contains({**value, "added": added}, value)


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"cpu": "1"}, {"cpu": "1000m"}),
        ({"env": [{"name": "A"}]}, {"env": [{"name": "A", "value": ""}]}),
        (
            {"containers": [{"name": "injected"}, {"name": "ours", "x": 1, "y": 2}]},
            {"containers": [{"name": "ours", "x": 1}]},
        ),
        ({}, {"tolerations": [], "paused": False}),
        (
            {"initContainers": [{"ports": [{"containerPort": 53, "protocol": "TCP"}]}]},
            {"initContainers": [{"ports": [{"containerPort": 53}]}]},
        ),
    ],
)
def test_another_notation_of_the_same_value_is_up_to_date(live, desired):
    assert contains(live, desired)


@pytest.mark.parametrize(
    ("live", "desired"),
    [
        ({"replicas": 3}, {"replicas": 0}),
        ({"args": ["a", "b"]}, {"args": ["a"]}),
        ({"args": ["b", "a"]}, {"args": ["a", "b"]}),
        ({"containers": [{"name": "ours", "image": "x"}]}, {"c": [{"name": "ours", "image": "y"}]}),
        ({"containers": []}, {"c": [{"name": "ours"}]}),
        ({"suspended": True}, {"suspended": False}),
        ({"x": "a"}, {"x": "b"}),
        (None, {"x": 1}),
        # Further ports of a NetworkPolicy permit more, and tolerations are one value.
        ({"ports": [{"port": 1}, {"port": 2}]}, {"ports": [{"port": 1}]}),
        ({"tolerations": [{"key": "a"}, {"key": "b"}]}, {"tolerations": [{"key": "a"}]}),
    ],
)
def test_a_different_value_of_our_fields_is_not_up_to_date(live, desired):
    assert not contains(live, desired)
