"""Comparison of an object in the cluster with its desired manifest.

An object is up to date if every field we set still has our value. Fields that others added, such
as defaults, injected containers and annotations, are ignored.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api.resource.scalars import quantity

_KEYS = ("name", "containerPort", "port", "mountPath", "uid")
"""Fields that identify an element of a list, in order of preference."""


def contains(live: Any, desired: Any) -> bool:
    """Whether `live` has all fields of `desired`, with the same values. Both are JSON."""
    if _is_empty(desired) and _is_empty(live):
        return True
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            contains(live.get(key), value) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(live, list) and _list_contains(live, desired)
    return live == desired or _same_quantity(live, desired)


def _list_contains(live: list[Any], desired: list[Any]) -> bool:
    key = next((k for k in _KEYS if all(isinstance(x, dict) and k in x for x in desired)), None)
    if key is None:  # others do not add elements to such a list
        return len(live) == len(desired) and all(map(contains, live, desired))
    by_key = {one.get(key): one for one in live if isinstance(one, dict)}
    return all(contains(by_key.get(one[key]), one) for one in desired)


def _is_empty(value: Any) -> bool:
    """Whether the API server may omit this value."""
    return value is None or value is False or value in ("", 0, [], {})


def _same_quantity(live: Any, desired: Any) -> bool:
    """Whether both are the same quantity: the API server writes 1000m as 1."""
    if type(live) is bool or type(desired) is bool:
        return False
    try:
        return quantity(str(live)) == quantity(str(desired))
    except ValueError:
        return False
