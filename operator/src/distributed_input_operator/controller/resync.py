"""Lists everything now and then: repairs what the watches missed, and proves that they deliver.

A watch can die with a green health page. So what the API server lists is held against what the
watches told; a difference that is still there after a grace period means that a watch is dead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.kube.store import InputKey, Json, Store

GRACE_SECONDS = 20.0
"""Events may be this late."""


@dataclass(frozen=True)
class _Suspect:
    """An object of which the watch has told another state than the list."""

    kind: Kind
    uid: str
    version: int
    """Of the API server; 0 where it is gone there."""
    namespace: str
    name: str


class Resync:
    """Compares and mends, kind by kind.

    Attributes:
        dead: kinds whose watch did not deliver, as of the last check.
        listing_seconds: what it took to list everything then.
    """

    def __init__(
        self,
        api: Api,
        store: Store,
        kinds: Iterable[Kind],
        namespaces: Iterable[str | None],
        mended: Callable[[InputKey], None],
    ) -> None:
        """Compares `kinds` in `namespaces`: those that are served, or [None] for all; `mended`
        gets what changed.
        """
        self._api = api
        self._store = store
        self._kinds = tuple(kinds)
        self._namespaces = tuple(namespaces)
        self._mended = mended
        self._told: dict[str, int] = {}
        self.dead: tuple[str, ...] = ()
        self.listing_seconds = 0.0

    def told(self, obj: Json, *, gone: bool = False) -> None:
        """A watch has told of `obj`."""
        meta = obj["metadata"]
        if gone:
            self._told.pop(meta["uid"], None)
        else:
            self._told[meta["uid"]] = int(meta["resourceVersion"])

    async def drop_missing(self, kind: Kind, namespace: str | None) -> None:
        """Drop the objects of `kind` that are in the store and not in the API server.

        Call this when a watch begins after a list: the watch does not report the objects that were
        deleted before that list. `namespace` is the watch's; None for all. Raises ApiError.
        """
        # What is read first existed before the list began: what the list lacks is deleted.
        known = self._store.of_kind(kind.kind)
        listed = {meta["uid"] async for meta in self._api.metadata(kind, namespace)}
        for uid, obj in known.items():
            if uid in listed or namespace not in (None, obj["metadata"]["namespace"]):
                continue
            self._told.pop(uid, None)
            key = self._store.drop(obj)
            if key:
                self._mended(key)

    async def check(self, grace: float = GRACE_SECONDS) -> None:
        """Compare; where something differs, wait `grace` seconds, look again, and mend.

        Raises ApiError where the API server does not answer: that says nothing of the watches.
        """
        started = time.monotonic()
        suspects = [one for kind in self._kinds for one in await self._suspects(kind)]
        self.listing_seconds = time.monotonic() - started
        if suspects:
            await asyncio.sleep(grace)
        kinds = {one.kind for one in suspects}
        known = {kind: self._store.of_kind(kind.kind) for kind in kinds}
        missed = [
            one for one in suspects if await self._still_differs(one, known[one.kind].get(one.uid))
        ]
        self.dead = tuple(sorted({one.kind.kind for one in missed}))

    async def _suspects(self, kind: Kind) -> list[_Suspect]:
        known = self._store.of_kind(kind.kind)
        listed, suspects = set(), []
        for namespace in (None,) if kind.cluster_scoped else self._namespaces:
            async for meta in self._api.metadata(kind, namespace):
                uid, version = meta["uid"], int(meta["resourceVersion"])
                listed.add(uid)
                if self._told.get(uid, 0) < version:
                    suspects.append(_suspect(kind, meta, version))
        for uid, obj in known.items():
            if uid not in listed:
                suspects.append(_suspect(kind, obj["metadata"], 0))
        return suspects

    async def _still_differs(self, one: _Suspect, known: Json | None) -> bool:
        """Whether the watch has not told of it meanwhile; what it did not tell is mended."""
        if one.version and self._told.get(one.uid, 0) >= one.version:
            return False
        if not one.version and known is None:
            return False
        now = await self._api.get(one.kind, one.namespace, one.name)
        there = now is not None and now["metadata"]["uid"] == one.uid
        if now is not None and there:
            key = self._store.put(now)
        else:
            key = self._store.drop(known) if known else None
        if key:
            self._mended(key)
        # Made or deleted while we looked: the watch has nothing to tell of that any more.
        return there if one.version else not there


def _suspect(kind: Kind, meta: Json, version: int) -> _Suspect:
    return _Suspect(kind, meta["uid"], version, meta.get("namespace", ""), meta["name"])
