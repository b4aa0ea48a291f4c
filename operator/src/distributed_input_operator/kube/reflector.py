"""The part of the store that one list and its watch fill.

A list is complete at its version: what it lacks is deleted. Each later change is an event of the
watch that begins at this version. So nothing is guessed, compared or listed twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.kube.api import Api, ApiError, backoff
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.kind import Kind

_log = logging.getLogger(__name__)

Changed = Callable[[InputKey, Kind, Json | None], None]
"""Called with an input whose object has changed, the object's kind, and the object. None: it is
deleted."""

WATCH_SECONDS = 300
"""Duration of one watch. The API server ends it."""
SILENT_SECONDS = 90.0
"""A watch without an event for so long is dead: the API server sends a bookmark every minute."""
_MAX_PAUSE_SECONDS = 30.0
_GONE = 410
"""The API server does not have the version of a watch, or of the next page, any more."""


class Mirror:
    """The objects of one kind and namespace in the store.

    Attributes:
        kind: their kind.
        namespace: their namespace. None: all.
        listed: set when the first list is complete.
    """

    def __init__(self, store: Store, kind: Kind, namespace: str | None, changed: Changed) -> None:
        self.kind, self.namespace = kind, namespace
        self.listed = asyncio.Event()
        self._store, self._changed = store, changed
        self._uids: set[str] = set()
        """The objects in the pages of the current list."""

    def begin(self) -> None:
        """Begin a list. The pages of an earlier one, which has failed, do not count."""
        self._uids = set()

    def add_page(self, page: Json) -> None:
        """Store the objects of a page. After the last one, drop what the list lacks."""
        for item in page["items"]:
            self._uids.add(item["metadata"]["uid"])
            self.put(item)
        meta = page["metadata"]
        if not meta.get("continue"):
            version, uids = int(meta["resourceVersion"]), self._uids
            for key in self._store.replace(self.kind.kind, self.namespace, uids, version):
                self._changed(key, self.kind, None)
            self.begin()
            self.listed.set()

    def put(self, item: Json) -> None:
        """Store an object of a list or an event."""
        obj = {**item, "kind": self.kind.kind, "apiVersion": self.kind.api_version}
        if key := self._store.put(obj):
            self._changed(key, self.kind, obj)

    def drop(self, item: Json) -> None:
        """Remove an object that an event reports as deleted."""
        if key := self._store.drop({**item, "kind": self.kind.kind}):
            self._changed(key, self.kind, None)

    def advance(self, version: str) -> None:
        """Record that all changes up to a version are in the store."""
        self._store.advance(self.kind.kind, self.namespace, int(version))


async def reflect(
    api: Api, mirror: Mirror, seconds: int = WATCH_SECONDS, silent: float = SILENT_SECONDS
) -> None:
    """List the objects of a mirror and watch them, until cancelled.

    Args:
        api: the API server.
        mirror: gets the objects.
        seconds: duration of one watch.
        silent: maximum seconds between two events of a watch.
    """
    version, failed = "", 0
    while True:
        try:
            if not version:
                version = await _list(api, mirror)
            events = api.watch(mirror.kind, mirror.namespace, version, seconds, silent)
            async for event in events:
                version, failed = _apply(mirror, event), 0
        except ApiError as error:
            level = logging.INFO if error.status == _GONE else logging.WARNING
            _log.log(level, "%s: listing or watching again: %s", mirror.kind.plural, error)
            if error.status == _GONE:
                version = ""
        # Without a pause after a watch with events: its connection has ended.
        await asyncio.sleep(_pause(failed))
        failed += 1


async def _list(api: Api, mirror: Mirror) -> str:
    """List all objects. Return the version at which the list is complete. Raises ApiError."""
    mirror.begin()
    async for page in api.pages(mirror.kind, mirror.namespace):
        mirror.add_page(page)
    return str(page["metadata"]["resourceVersion"])


def _apply(mirror: Mirror, event: Json) -> str:
    """Store the change that an event reports. Return its version."""
    obj: Json = event["object"]
    if event["type"] == "DELETED":
        mirror.drop(obj)
    elif event["type"] != "BOOKMARK":
        mirror.put(obj)
    version = str(obj["metadata"]["resourceVersion"])
    mirror.advance(version)
    return version


def _pause(failed: int) -> float:
    """Return the seconds to wait after a number of consecutive watches without an event."""
    return backoff(failed, _MAX_PAUSE_SECONDS) * random.uniform(0.5, 1.0) if failed else 0.0
