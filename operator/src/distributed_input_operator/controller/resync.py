"""Compare the store with lists of the API server: repair differences, and detect dead watches.

A watch can stop delivering events without an error. It is dead if a difference between a list and
the store remains after a grace period in which it delivered no event. A slow process still receives
events, so its watches are not dead. Objects that the watched label places with no input do not
count, because the store does not keep them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.kube.store import Json, Store, input_of

_log = logging.getLogger(__name__)

GRACE_SECONDS = 20.0
"""Maximum delay of an event."""


@dataclass(frozen=True)
class _Difference:
    """An object whose list entry differs from the store."""

    kind: Kind
    uid: str
    version: int
    """The version in the API server. 0: it is deleted there."""
    namespace: str
    name: str


class Resync:
    """Compares the store with lists, kind by kind.

    Attributes:
        dead: kinds whose watch was dead at the last check.
        listing_seconds: time that the last check needed to list everything.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        kinds: Iterable[Kind],
        namespaces: Iterable[str | None],
        changed: Callable[[InputKey], None],
    ) -> None:
        """Create a resync.

        Args:
            api: the API server.
            store: the store to compare and repair.
            kinds: the kinds to compare.
            namespaces: the namespaces to compare. [None]: all.
            changed: called with each input whose objects were repaired.
        """
        self._api = api
        self._store = store
        self._kinds = tuple(kinds)
        self._namespaces = tuple(namespaces)
        self._changed = changed
        self._events: Counter[tuple[str, str | None]] = Counter()
        """Number of events by watch: kind and namespace (None: all)."""
        self.dead: tuple[str, ...] = ()
        self.listing_seconds = 0.0

    def record_event(self, obj: Json) -> None:
        """Record that a watch reported an object."""
        self._events[self._watch(obj["kind"], obj["metadata"].get("namespace", ""))] += 1

    def _watch(self, kind: str, namespace: str) -> tuple[str, str | None]:
        return kind, namespace if namespace in self._namespaces else None

    async def drop_missing(self, kind: Kind, namespace: str | None) -> None:
        """Drop the objects of `kind` that are in the store but not in the API server.

        Call this when a watch begins after a list: the watch does not report the objects that were
        deleted before that list. `namespace` is the watch's (None: all). Raises ApiError.
        """
        # The store is read before the list begins, so objects that the list lacks are deleted.
        known = self._store.of_kind(kind.kind)
        listed = {meta["uid"] async for meta in self._listed(kind, namespace)}
        for uid, obj in known.items():
            if uid in listed or namespace not in (None, obj["metadata"]["namespace"]):
                continue
            key = self._store.drop(obj)
            if key:
                self._changed(key)

    async def check(self, grace: float = GRACE_SECONDS) -> None:
        """Compare. Repair the differences that remain after `grace` seconds.

        Raises ApiError if the API server does not respond: then nothing is known of the watches.
        """
        started = time.monotonic()
        differences = [one for kind in self._kinds for one in await self._differences(kind)]
        self.listing_seconds = time.monotonic() - started
        before = self._events.copy()
        if differences:
            await asyncio.sleep(grace)
        kinds = {one.kind for one in differences}
        known = {kind: self._store.of_kind(kind.kind) for kind in kinds}
        missed = [one for one in differences if await self._is_missed(one, known[one.kind])]
        watches = {self._watch(one.kind.kind, one.namespace) for one in missed}
        dead = {one[0] for one in watches if self._events[one] == before[one]}
        self.dead = tuple(sorted(dead))

    async def _differences(self, kind: Kind) -> list[_Difference]:
        known = self._store.of_kind(kind.kind)
        listed, differences = set(), []
        for namespace in (None,) if kind.cluster_scoped else self._namespaces:
            async for meta in self._listed(kind, namespace):
                uid, version = meta["uid"], int(meta["resourceVersion"])
                listed.add(uid)
                if _version(known.get(uid)) < version:
                    differences.append(_difference(kind, meta, version))
        for uid, obj in known.items():
            if uid not in listed:
                differences.append(_difference(kind, obj["metadata"], 0))
        return differences

    async def _listed(self, kind: Kind, namespace: str | None) -> AsyncIterator[Json]:
        """List the metadata of the objects that belong to inputs. Raises ApiError."""
        async for meta in self._api.metadata(kind, namespace):
            # Any user can give an object the watched label without the name of an input.
            if input_of({"kind": kind.kind, "metadata": meta}):
                yield meta

    async def _is_missed(self, one: _Difference, known: Mapping[str, Json]) -> bool:
        try:
            return await self._still_differs(one, known.get(one.uid))
        except ApiError as error:
            name = f"{one.kind.kind} {one.namespace}/{one.name}"
            _log.warning("resync of %s failed, will retry: %s", name, error)
            return False

    async def _still_differs(self, one: _Difference, known: Json | None) -> bool:
        """Return whether the watch missed the difference. Repair it in the store."""
        if one.version and _version(known) >= one.version:
            return False
        if not one.version and known is None:
            return False
        found = self._api.objects(one.kind, one.namespace, name=one.name)
        now = [obj async for obj in found if obj["metadata"]["uid"] == one.uid and input_of(obj)]
        key = self._store.drop(known) if known and not now else None
        for obj in now:
            key = self._store.put(obj)
        if key:
            self._changed(key)
        exists = bool(now)
        # If it was created or deleted during the check, the watch does not report that version.
        return exists if one.version else not exists


def _version(known: Json | None) -> int:
    """Return the version in the store, which the operator's own write may have had. 0: none."""
    return int(known["metadata"]["resourceVersion"]) if known else 0


def _difference(kind: Kind, meta: Json, version: int) -> _Difference:
    return _Difference(kind, meta["uid"], version, meta.get("namespace", ""), meta["name"])
