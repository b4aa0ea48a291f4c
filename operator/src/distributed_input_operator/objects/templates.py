"""Merging the user's pod template over ours."""

from __future__ import annotations

from typing import Any


def merged(ours: Any, users: Any) -> Any:
    """`ours` with `users` over it, both JSON, neither changed.

    Mappings key by key, null takes a key away; lists of named things by name; other lists whole.
    """
    if isinstance(ours, dict) and isinstance(users, dict):
        made = {key: value for key, value in ours.items() if users.get(key, value) is not None}
        for key, value in users.items():
            if value is not None:
                made[key] = merged(ours[key], value) if key in ours else value
        return made
    if _named(ours) and _named(users):
        names = [one["name"] for one in ours]
        by_name = {one["name"]: one for one in users}
        kept = [merged(one, by_name.get(one["name"], {})) for one in ours]
        return kept + [one for one in users if one["name"] not in names]
    return users


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, dict) and "name" in x for x in value)
