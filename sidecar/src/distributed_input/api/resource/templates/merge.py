"""Merging of the user's pod template over a generated one."""

from __future__ import annotations

from typing import Any

from distributed_input.api.resource.templates.list_keys import by_key


def merge(
    base: Any, override: Any, field: str = "", parent: str = "", *, null_removes: bool = True
) -> Any:
    """Return `base` with `override` merged over it. Both are JSON and do not change.

    Mappings merge by key. Lists merge by the same keys as in the API server: containers by name,
    volume mounts by path. A port replaces another one of the same name, because the API server
    refuses both. Other values of `override` replace those of `base`.

    Args:
        base: the generated value.
        override: the user's value.
        field: name of the field that has the value, or the list with the value.
        parent: name of the field that has the object with `field`.
        null_removes: whether null removes a key. If not, it is a value.
    """
    if isinstance(base, dict) and isinstance(override, dict):
        result = {**base, **override}
        for key in base.keys() & override.keys():
            result[key] = merge(base[key], override[key], key, field, null_removes=null_removes)
        return {
            key: value
            for key, value in result.items()
            if value is not None or not null_removes or key not in override
        }
    ours, theirs = by_key(base, field, parent), by_key(override, field, parent)
    if ours is not None and theirs is not None:
        taken = {one.get("name") for one in theirs.values()} - {None} if field == "ports" else ()
        merged = [
            merge(one, theirs.get(key, {}), field, null_removes=null_removes)
            for key, one in ours.items()
            if key in theirs or one.get("name") not in taken
        ]
        return merged + [one for key, one in theirs.items() if key not in ours]
    return override
