"""Comparison of an object in the cluster with its desired manifest.

An object is up to date if every field we set still has our value. Fields that others added, such
as defaults, injected containers and annotations, are ignored.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api.resource.merge import by_key
from distributed_input.api.resource.scalars import quantity


def contains(live: Any, desired: Any, field: str = "", parent: str = "") -> bool:
    """Whether `live` has all fields of `desired`, with the same values. Both are JSON.

    `field` has the value, or the list with the value. `parent` has the object with `field`.
    """
    # Most parts have no field of others, and this compares them at once.
    if live == desired or (_is_empty(desired) and _is_empty(live)):
        return True
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(
            contains(live.get(key), value, key, field) for key, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(live, list) and _list_contains(live, desired, field, parent)
    return _same_quantity(live, desired)


def _list_contains(live: list[Any], desired: list[Any], field: str, parent: str) -> bool:
    ours, found = by_key(desired, field, parent), by_key(live, field, parent)
    if ours is None or found is None:  # others do not add elements to such a list
        return len(live) == len(desired) and all(
            contains(*pair, field) for pair in zip(live, desired, strict=True)
        )
    return all(contains(found.get(key), one, field) for key, one in ours.items())


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
