"""The cluster as the watches have told it: inputs, children and pods, by input.

Fed with events, with the answers to our own writes (so that the next look sees them), and by the
resync. Newer versions win, whatever the order in which they come. Kept are only the parts that
anyone looks at, packed: as Python's dicts the children of 10,000 inputs would take gigabytes.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections import defaultdict
from typing import Any, NamedTuple

from distributed_input.api import names
from distributed_input.api.resource.input import KIND
from distributed_input.api.resource.policy import POLICY_KIND, POLICY_NAME
from distributed_input_operator.objects.snapshot import Key

Json = dict[str, Any]
InputKey = tuple[str, str]
"""Namespace and name of an input."""
POLICY_KEY: InputKey = ("", POLICY_NAME)
"""Where the cluster's policy is, among the inputs."""

_OWN_METADATA = frozenset(
    "name namespace uid resourceVersion generation labels annotations ownerReferences "
    "creationTimestamp deletionTimestamp".split()
)
_POD_STATUS = frozenset("phase podIP conditions containerStatuses".split())
_CONTAINER = ("restartPolicy", "resources")
_LEVEL = 1
"""The quickest: a look unpacks, an event packs."""


class _Known(NamedTuple):
    """An object as it is kept."""

    uid: str
    version: int
    packed: bytes


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
        self._objects: dict[InputKey, dict[Key, _Known]] = defaultdict(dict)

    def put(self, obj: Json) -> InputKey | None:
        """Take in an object; its input, or None where nothing is new."""
        key = input_of(obj)
        if key is None:
            return None
        of_input, place = self._objects[key], (sys.intern(obj["kind"]), obj["metadata"]["name"])
        known, version = of_input.get(place), _version(obj)
        if known is not None and known.version >= version:
            return None
        of_input[place] = _Known(obj["metadata"].get("uid", ""), version, _packed(obj))
        return key

    def drop(self, obj: Json) -> InputKey | None:
        """Forget an object that was deleted; its input, or None where it was not known."""
        key = input_of(obj)
        place = (obj.get("kind", ""), obj["metadata"]["name"])
        known = self._objects.get(key, {}).get(place) if key else None
        if key is None or known is None or known.uid != obj["metadata"]["uid"]:
            return None
        del self._objects[key][place]
        if not self._objects[key]:
            del self._objects[key]
        return key

    def input(self, key: InputKey) -> Json | None:
        """The input itself; None where it is gone."""
        return self._one(key, KIND)

    def policy(self) -> Json | None:
        """The cluster's policy; None where there is none."""
        return self._one(POLICY_KEY, POLICY_KIND)

    def children(self, key: InputKey) -> dict[Key, Json]:
        """All that belongs to an input, by kind and name; of pods their status and requests."""
        found = self._objects.get(key, {})
        return {place: _unpacked(one) for place, one in found.items() if place[0] != KIND}

    def known(self) -> list[InputKey]:
        """All inputs, those included that are gone while something that belongs to them is not."""
        return [key for key in self._objects if key != POLICY_KEY]

    def of_kind(self, kind: str) -> dict[str, Json]:
        """What identifies each object of a kind, by uid."""
        return {
            one.uid: _reference(key, place, one)
            for key, found in self._objects.items()
            for place, one in found.items()
            if place[0] == kind
        }

    def _one(self, key: InputKey, kind: str) -> Json | None:
        known = self._objects.get(key, {}).get((kind, key[1]))
        return None if known is None else _unpacked(known)


def _version(obj: Json) -> int:
    """The object's resource version: a number that grows."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def _packed(obj: Json) -> bytes:
    meta = {key: value for key, value in obj["metadata"].items() if key in _OWN_METADATA}
    kept = {**obj, "metadata": meta}
    if obj["kind"] == "Pod":  # its spec is its Deployment's, or was
        status = obj.get("status") or {}
        kept = {
            "kind": "Pod",
            "metadata": meta,
            "spec": _requests(obj.get("spec") or {}),
            "status": {key: value for key, value in status.items() if key in _POD_STATUS},
        }
    return zlib.compress(json.dumps(kept, separators=(",", ":")).encode(), _LEVEL)


def _requests(spec: Json) -> Json:
    """What a pod takes: while a Deployment changes, or when it is gone, nothing else tells."""
    return {
        kind: [{key: one[key] for key in _CONTAINER if key in one} for one in spec[kind]]
        for kind in ("initContainers", "containers")
        if kind in spec
    }


def _unpacked(known: _Known) -> Json:
    obj: Json = json.loads(zlib.decompress(known.packed))
    return obj


def _reference(key: InputKey, place: Key, known: _Known) -> Json:
    meta = {"namespace": key[0], "name": place[1], "uid": known.uid}
    return {"kind": place[0], "metadata": {**meta, "labels": {names.INPUT_LABEL: key[1]}}}
