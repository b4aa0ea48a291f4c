"""The cluster as the watches have told it: inputs, children and pods, by input.

Fed with events, with the answers to our own writes (so that the next look sees them), and by the
resync. Newer versions win, whatever the order in which they come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from distributed_input_operator.core import names
from distributed_input_operator.core.policy import POLICY_KIND, POLICY_NAME
from distributed_input_operator.core.snapshot import Key
from distributed_input_operator.core.types import KIND

Json = dict[str, Any]
InputKey = tuple[str, str]
"""Namespace and name of an input."""
POLICY_KEY: InputKey = ("", POLICY_NAME)
"""Where the cluster's policy is, among the inputs."""

_OWN_METADATA = frozenset(
    "name namespace uid resourceVersion generation labels annotations ownerReferences "
    "creationTimestamp deletionTimestamp".split()
)


def input_of(obj: Json) -> InputKey | None:
    """The input that an object is, or belongs to; None for what is none of ours."""
    meta = obj["metadata"]
    name = meta["name"]
    if obj.get("kind") == POLICY_KIND:
        return POLICY_KEY
    if obj.get("kind") != KIND:
        name = (meta.get("labels") or {}).get(names.INPUT_LABEL, "")
    return (meta["namespace"], name) if name else None


class Store:
    """What is known; one event loop's, so without locks."""

    def __init__(self) -> None:
        self._objects: dict[InputKey, dict[Key, Json]] = defaultdict(dict)

    def put(self, obj: Json) -> InputKey | None:
        """Take in an object; its input, or None where nothing is new."""
        key = input_of(obj)
        if key is None:
            return None
        of_input, place = self._objects[key], (obj["kind"], obj["metadata"]["name"])
        if place in of_input and version(of_input[place]) >= version(obj):
            return None
        of_input[place] = _trimmed(obj)
        return key

    def drop(self, obj: Json) -> InputKey | None:
        """Forget an object that was deleted; its input, or None where it was not known."""
        key = input_of(obj)
        place = (obj.get("kind", ""), obj["metadata"]["name"])
        known = self._objects.get(key, {}).get(place) if key else None
        if key is None or known is None or known["metadata"]["uid"] != obj["metadata"]["uid"]:
            return None
        del self._objects[key][place]
        if not self._objects[key]:
            del self._objects[key]
        return key

    def input(self, key: InputKey) -> Json | None:
        """The input itself; None where it is gone."""
        return self._objects.get(key, {}).get((KIND, key[1]))

    def policy(self) -> Json | None:
        """The cluster's policy; None where there is none."""
        return self._objects.get(POLICY_KEY, {}).get((POLICY_KIND, POLICY_NAME))

    def children(self, key: InputKey) -> dict[Key, Json]:
        """All that belongs to an input, by kind and name."""
        found = self._objects.get(key, {})
        return {place: obj for place, obj in found.items() if place[0] != KIND}

    def inputs(self) -> Iterator[InputKey]:
        """All inputs."""
        return iter([key for key, found in self._objects.items() if (KIND, key[1]) in found])

    def of_kind(self, kind: str) -> dict[str, Json]:
        """All objects of a kind, by uid."""
        return {
            obj["metadata"]["uid"]: obj
            for found in self._objects.values()
            for place, obj in found.items()
            if place[0] == kind
        }


def version(obj: Json) -> int:
    """The object's resource version: a number that grows."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def _trimmed(obj: Json) -> Json:
    meta = {key: value for key, value in obj["metadata"].items() if key in _OWN_METADATA}
    return {**obj, "metadata": meta}
