"""The objects of the cluster as the watches reported them: inputs, children and pods, by input.

Its content comes from lists, from events, and from responses to the operator's own writes (so that
the next reconciliation sees them). Newer versions win in any order: a response may arrive after the
event of the object's deletion. Only the parts that the operator reads are kept, compressed: as
Python dicts, the children of 10,000 inputs would need gigabytes. Objects of one kind differ little,
so the first one is the dictionary that compresses the others.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Container
from typing import NamedTuple

from distributed_input.api import names
from distributed_input.api.resource.input import KIND, manager
from distributed_input.api.resource.policy import POLICY_KIND, POLICY_NAME
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.kube import json_text
from distributed_input_operator.kube.json_text import Json, shared
from distributed_input_operator.objects.snapshot import Key

POLICY_KEY: InputKey = ("", POLICY_NAME)
"""The key of the cluster's policy, among those of inputs."""

_OWN_METADATA = frozenset(
    "name namespace uid resourceVersion generation labels annotations ownerReferences "
    "creationTimestamp deletionTimestamp".split()
)
_POD_STATUS = frozenset("phase podIP conditions initContainerStatuses containerStatuses".split())
_CONTAINER = ("restartPolicy", "resources")
_LEVEL = 1
"""The fastest compression level. Each event packs, and each reconciliation unpacks."""
_DICTIONARY = 32 << 10
"""Maximum size of zlib's dictionary."""


class _Packed(NamedTuple):
    """A stored object."""

    uid: str
    version: int
    content: bytes


def input_of(obj: Json) -> InputKey | None:
    """Return the input that an object is or belongs to. None: the object is not an input's."""
    meta = obj["metadata"]
    name: str = meta["name"]
    if obj.get("kind") == POLICY_KIND:
        return POLICY_KEY
    if obj.get("kind") != KIND:
        # An owner stays if somebody changes the label, which is then repaired.
        owners = meta.get("ownerReferences") or ()
        owner = next((one["name"] for one in owners if one.get("kind") == KIND), None)
        name = owner or (meta.get("labels") or {}).get(names.INPUT_LABEL, "")
    # Many parts of the operator keep keys. Their texts are kept once.
    return (shared(meta["namespace"]), shared(name)) if name else None


class Store:
    """The known objects. It belongs to one event loop, so it has no locks."""

    def __init__(self, operator_class: str = "") -> None:
        """Create without objects. Inputs of another class than `operator_class` are foreign."""
        self._manager = manager(operator_class)
        self._foreign: set[InputKey] = set()
        self._objects: dict[InputKey, dict[Key, _Packed]] = defaultdict(dict)
        self._keys: dict[str, InputKey] = {}
        """The input of each object by uid. Somebody may change the label that names it."""
        self._complete: dict[tuple[str, str | None], int] = {}
        """Kind and namespace (None: all), and the version up to which all changes are known."""
        self._dictionaries: dict[str, bytes] = {}
        """The content of the first object of each kind."""

    def put(self, obj: Json) -> InputKey | None:
        """Store an object, or remove it if it is no input's any more.

        Returns:
            The input that it belongs to, or did. None: the object is not new, or no input's.
        """
        key = input_of(obj)
        place, version = (shared(obj.get("kind", "")), obj["metadata"]["name"]), _version(obj)
        uid = shared(obj["metadata"].get("uid", ""))
        if uid not in self._keys and self._is_deleted(obj, version):
            return None
        before = self._keys.get(uid) or key
        known = self._objects.get(before, {}).get(place) if before else None
        if before and known is not None:
            if known.version >= version:
                return None
            self._keys.pop(known.uid, None)
            if before != key:
                self._remove(before, place)
        if key is None:
            return before if known is not None else None
        self._keys[uid] = key
        self._objects[key][place] = _Packed(uid, version, self._packed(obj))
        if obj["kind"] == KIND:
            own = (obj.get("spec") or {}).get("managedBy") == self._manager
            (self._foreign.discard if own else self._foreign.add)(key)
        return key

    def drop(self, obj: Json) -> InputKey | None:
        """Remove a deleted object. Return its input. None: the object was not known."""
        place, uid = (obj.get("kind", ""), obj["metadata"]["name"]), obj["metadata"]["uid"]
        key = self._keys.get(uid) or input_of(obj)
        known = self._objects.get(key, {}).get(place) if key else None
        if key is None or known is None or known.uid != uid:
            return None
        self._discard(key, place, uid)
        return key

    def replace(
        self, kind: str, namespace: str | None, uids: Container[str], version: int
    ) -> list[InputKey]:
        """Remove the objects of a kind that a complete list lacks. Return their inputs.

        Args:
            kind: the kind.
            namespace: that of the list. None: all.
            uids: the objects in the list.
            version: of the list. Objects with a newer version were created after it.
        """
        gone = [
            (key, place, one.uid)
            for key, found in self._objects.items()
            if namespace in (None, key[0])
            for place, one in found.items()
            if place[0] == kind and one.version <= version and one.uid not in uids
        ]
        for one in gone:
            self._discard(*one)
        self.advance(kind, namespace, version)
        return [key for key, _, _ in gone]

    def advance(self, kind: str, namespace: str | None, version: int) -> None:
        """Record that all changes of a kind up to a version are known."""
        place = (kind, namespace)
        self._complete[place] = max(version, self._complete.get(place, 0))

    def has(self, uid: str) -> bool:
        """Return whether an object is stored."""
        return uid in self._keys

    def _is_deleted(self, obj: Json, version: int) -> bool:
        """Return whether an unknown object existed before all that is known, and so is deleted."""
        kind, places = obj.get("kind", ""), (None, obj["metadata"].get("namespace"))
        return any(version <= self._complete.get((kind, one), -1) for one in places)

    def _discard(self, key: InputKey, place: Key, uid: str) -> None:
        self._remove(key, place)
        self._keys.pop(uid, None)
        if place[0] == KIND:
            self._foreign.discard(key)

    def _remove(self, key: InputKey, place: Key) -> None:
        del self._objects[key][place]
        if not self._objects[key]:
            del self._objects[key]

    def get(self, key: InputKey, kind: str) -> Json | None:
        """Return the input, or the policy, itself. None: it is deleted."""
        known = self._objects.get(key, {}).get((kind, key[1]))
        return None if known is None else self._unpacked(kind, known)

    def input(self, key: InputKey) -> Json | None:
        """Return the input object. None: it is deleted."""
        return self.get(key, KIND)

    def is_foreign(self, key: InputKey) -> bool:
        """Return whether another operator manages this input."""
        return key in self._foreign

    def policy(self) -> Json | None:
        """Return the cluster's policy. None: there is none."""
        return self.get(POLICY_KEY, POLICY_KIND)

    def children(self, key: InputKey) -> dict[Key, Json]:
        """Return all objects that belong to an input, by kind and name.

        A pod has only its status and its requests.
        """
        found = self._objects.get(key, {})
        return {
            place: self._unpacked(place[0], one) for place, one in found.items() if place[0] != KIND
        }

    def known(self) -> list[InputKey]:
        """Return all inputs, including deleted ones whose children remain."""
        return [key for key in self._objects if key != POLICY_KEY]

    def _packed(self, obj: Json) -> bytes:
        content = json_text.encode(_kept(obj))
        dictionary = self._dictionaries.setdefault(obj["kind"], content[-_DICTIONARY:])
        packer = zlib.compressobj(_LEVEL, zdict=dictionary)
        return packer.compress(content) + packer.flush()

    def _unpacked(self, kind: str, known: _Packed) -> Json:
        unpacker = zlib.decompressobj(zdict=self._dictionaries[kind])
        return json_text.decode(unpacker.decompress(known.content))


def _version(obj: Json) -> int:
    """Return the object's resource version, a number that increases."""
    return int(obj["metadata"].get("resourceVersion") or 0)


def _kept(obj: Json) -> Json:
    """Return the parts of an object that the operator reads."""
    meta = {key: value for key, value in obj["metadata"].items() if key in _OWN_METADATA}
    if obj["kind"] != "Pod":
        return {**obj, "metadata": meta}
    status = obj.get("status") or {}
    return {
        "kind": "Pod",
        "metadata": meta,
        "spec": _requests(obj.get("spec") or {}),  # The others come from its Deployment.
        "status": {key: value for key, value in status.items() if key in _POD_STATUS},
    }


def _requests(spec: Json) -> Json:
    """Return what a pod requests. Its Deployment may be deleted, or may have changed since."""
    containers: Json = {
        kind: [{key: one[key] for key in _CONTAINER if key in one} for one in spec[kind]]
        for kind in ("initContainers", "containers")
        if kind in spec
    }
    return {**containers, **{key: spec[key] for key in ("resources", "overhead") if key in spec}}
