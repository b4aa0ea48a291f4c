"""Whether an object in the cluster is as wanted: all that we said is there, as we said it.

What others added (defaults, injected containers, annotations) does not count.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api.resource.scalars import quantity

_KEYS = ("name", "containerPort", "port", "mountPath", "uid")


def contains(live: Any, wanted: Any) -> bool:
    """Whether `live` has everything of `wanted`, both JSON as the API server speaks it."""
    if _empty(wanted) and _empty(live):
        return True
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            contains(live.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and _list_contains(live, wanted)
    return live == wanted or _same_quantity(live, wanted)


def _list_contains(live: list[Any], wanted: list[Any]) -> bool:
    key = next((k for k in _KEYS if all(isinstance(x, dict) and k in x for x in wanted)), None)
    if key is None:  # a list that has one owner
        return len(live) == len(wanted) and all(map(contains, live, wanted))
    by_key = {one.get(key): one for one in live if isinstance(one, dict)}
    return all(contains(by_key.get(one[key]), one) for one in wanted)


def _empty(value: Any) -> bool:
    """The API server leaves out what is empty, and says so in no other way."""
    return value is None or value is False or value in ("", 0, [], {})


def _same_quantity(live: Any, wanted: Any) -> bool:
    """The API server writes 1000m as 1."""
    if type(live) is bool or type(wanted) is bool:
        return False
    try:
        return quantity(str(live)) == quantity(str(wanted))
    except ValueError:
        return False
