"""Merging of pod templates, and the lists that Kubernetes merges by keys of their elements.

The API server publishes these keys as `x-kubernetes-list-map-keys`. All other lists are atomic: an
owner sets the whole list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

_DEFAULTS = {"protocol": "TCP"}
"""Values of keys that may be missing."""
_BY_NAME = (
    "claims containers env ephemeralContainers imagePullSecrets initContainers resourceClaims "
    "schedulingGates volumes"
).split()
_CONTAINER_PORT = ("containerPort", "protocol")
LIST_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_BY_NAME, ("name",)),
    "conditions": ("type",),
    "containers.ports": _CONTAINER_PORT,
    "ephemeralContainers.ports": _CONTAINER_PORT,
    "hostAliases": ("ip",),
    "initContainers.ports": _CONTAINER_PORT,
    "ownerReferences": ("uid",),
    "spec.ports": ("port", "protocol"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeDevices": ("devicePath",),
    "volumeMounts": ("mountPath",),
}
"""The keys by field, or by parent and field: the ports of a NetworkPolicy are atomic."""

Keyed = dict[tuple[Any, ...], Any]
"""The elements of a list by the values of their keys, and by how many before have the same."""


def by_key(items: Any, field: str, parent: str = "") -> Keyed | None:
    """Return the elements of a list by key. None: it is no list, or it is atomic.

    A key may repeat, for example in `env`. Its elements then differ in their occurrence. `field`
    has the list, and `parent` has the object with `field`.
    """
    keys = LIST_KEYS.get(field) or LIST_KEYS.get(f"{parent}.{field}")
    if keys is None or not isinstance(items, list):
        return None
    found: Keyed = {}
    count: Counter[tuple[Any, ...]] = Counter()
    for one in items:
        if not isinstance(one, dict):
            return None
        values = tuple(one.get(key, _DEFAULTS.get(key)) for key in keys)
        if not all(isinstance(value, str | int) for value in values):
            return None  # a key is missing: the API server refuses such a list
        found[(*values, count[values])] = one
        count[values] += 1
    return found


def merge(base: Any, override: Any, field: str = "", parent: str = "") -> Any:
    """Return `base` with `override` merged over it. Both are JSON and do not change.

    Mappings merge by key, and null removes a key. Lists merge by the same keys as in the API
    server: containers by name, volume mounts by path. A port replaces another one of the same name,
    because the API server refuses both. Other values of `override` replace those of `base`. `field`
    has the value, or the list with the value. `parent` has the object with `field`.
    """
    if isinstance(base, dict) and isinstance(override, dict):
        result = {**base, **override}
        for key in base.keys() & override.keys():
            result[key] = merge(base[key], override[key], key, field)
        return {
            key: value for key, value in result.items() if value is not None or key not in override
        }
    ours, theirs = by_key(base, field, parent), by_key(override, field, parent)
    if ours is not None and theirs is not None:
        taken = {one.get("name") for one in theirs.values()} - {None} if field == "ports" else ()
        merged = [
            merge(one, theirs.get(key, {}), field)
            for key, one in ours.items()
            if key in theirs or one.get("name") not in taken
        ]
        return merged + [one for key, one in theirs.items() if key not in ours]
    return override
