"""Merging of the user's pod template."""

from __future__ import annotations

import copy

from hypothesis import given

from distributed_input_operator.objects.template_merge import merge
from tests.unit.distributed_input_operator.objects.json_values import json_objects


def test_containers_merge_by_name_and_null_removes_a_key():
    base = {"containers": [{"name": "worker", "image": "a", "tty": True}], "x": {"y": 1}, "z": 1}
    override = {
        "containers": [{"name": "worker", "image": "b"}, {"name": "proxy"}],
        "x": {"w": [1]},
        "z": None,
    }
    assert merge(base, override) == {
        "containers": [{"name": "worker", "image": "b", "tty": True}, {"name": "proxy"}],
        "x": {"y": 1, "w": [1]},
    }


def test_a_list_without_names_is_replaced():
    assert merge({"args": ["a", "b"]}, {"args": ["c"]}) == {"args": ["c"]}


@given(json_objects, json_objects)
def test_merging_twice_equals_merging_once(base, override):
    once = merge(base, override)
    assert merge(once, override) == once


@given(json_objects, json_objects)
def test_an_empty_override_changes_nothing_and_the_arguments_stay(base, override):
    kept = copy.deepcopy((base, override))
    assert merge(base, {}) == base
    merge(base, override)
    assert (base, override) == kept
