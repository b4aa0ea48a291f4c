"""Comparison of an object in the cluster with its desired manifest."""

from __future__ import annotations

import pytest
from hypothesis import given

from distributed_input_operator.objects.matching import contains
from tests.unit.distributed_input_operator.objects.json_values import json_objects, json_values


@given(json_values)
def test_an_object_with_exactly_our_fields_is_up_to_date(value):
    assert contains(value, value)


@given(json_objects, json_values)
def test_fields_that_others_add_are_ignored(value, added):
    assert contains({**value, "added": added}, value)


@pytest.mark.parametrize(
    ("live", "desired"),
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
def test_another_notation_of_the_same_value_is_up_to_date(live, desired):
    assert contains(live, desired)


@pytest.mark.parametrize(
    ("live", "desired"),
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
def test_a_different_value_of_our_fields_is_not_up_to_date(live, desired):
    assert not contains(live, desired)
