"""Merging of the user's pod template over the generated one."""

from __future__ import annotations

from typing import Any


def merge(base: Any, override: Any) -> Any:
    """Return `base` with `override` merged over it. Both are JSON and do not change.

    Mappings merge by key, and null removes a key. Lists of objects with names merge by name. Other
    values of `override` replace those of `base`.
    """
    if isinstance(base, dict) and isinstance(override, dict):
        result = {k: value for k, value in base.items() if override.get(k, value) is not None}
        for key, value in override.items():
            if value is not None:
                result[key] = merge(base[key], value) if key in base else value
        return result
    if _has_names(base) and _has_names(override):
        names = [one["name"] for one in base]
        by_name = {one["name"]: one for one in override}
        merged = [merge(one, by_name.get(one["name"], {})) for one in base]
        return merged + [one for one in override if one["name"] not in names]
    return override


def _has_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(x, dict) and "name" in x for x in value)
