"""Apply changes of inputs while a new leader lists the cluster: the list may take half a minute.

The inputs are listed first. From then on, a watch reports their changes, until kopf's own watch has
listed them once more. As long as the children are not listed, those of each changed input are
listed alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from distributed_input.api import names
from distributed_input.api.resource.input import KIND
from distributed_input_operator.budget.claim import InputKey, namespace_of
from distributed_input_operator.controller.work_queue import Lane, WorkQueue
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import INPUT, POLICY, Kind
from distributed_input_operator.kube.store import Json

_log = logging.getLogger(__name__)

WATCH_SECONDS = 300
"""Duration of one watch."""
MAX_WATCHES = 16
"""Maximum number of namespaces for which there are first watches. Each takes one of the 100
connections to the API server."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 8.0
"""Time before a request that failed is repeated. It doubles with each failure."""
_GONE = 410
"""The API server does not have the version any more after which a watch should begin."""
_CONCURRENT = 16
"""Inputs whose children are listed at the same time, beside the list of all. One namespace has at
most half of them, and earlier changes a quarter."""


class FirstChanges:
    """Changed inputs of a new leader, before it knows the children of all inputs."""

    def __init__(
        self,
        api: Api,
        kinds: Sequence[Kind],
        put: Callable[[Json], InputKey | None],
        ready: Callable[[InputKey, Lane], None],
    ) -> None:
        """Create without changes.

        Args:
            api: the API server.
            kinds: the kinds that the operator watches.
            put: called with each child that is listed.
            ready: called with each input whose children are listed, and its lane.
        """
        self._api, self._put, self._ready = api, put, ready
        self._children = tuple(kind for kind in kinds if kind not in (INPUT, POLICY))
        self._queue: WorkQueue[InputKey] = WorkQueue(namespace_of, _CONCURRENT)
        self._lanes: dict[InputKey, Lane] = {}
        """Inputs whose children are not listed yet."""
        self._failures: Counter[InputKey] = Counter()
        self._complete: set[InputKey] = set()
        """Inputs whose children are known."""

    def add(self, key: InputKey, lane: Lane) -> None:
        """List the children of a changed input, then report it as ready.

        If the API server refuses to list them, its next change lists them again.
        """
        if key in self._complete:
            self._ready(key, lane)
            return
        self._lanes[key] = min(lane, self._lanes.get(key, lane))
        self._queue.add(key, lane)

    async def run(self) -> None:
        """List until cancelled, because all children are known."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENT):
                group.create_task(self._list_forever())

    async def _list_forever(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                if key not in self._complete:  # It may have changed again meanwhile.
                    await self._list(key)
            finally:
                self._queue.done(key)

    async def _list(self, key: InputKey) -> None:
        # Together: each waits until the API server's cache has all earlier writes.
        lists = (self._list_kind(kind, key) for kind in self._children)
        errors = [one for one in await asyncio.gather(*lists) if one is not None]
        if not errors:
            self._complete.add(key)
            self._ready(key, self._lanes.pop(key))
            return
        _log.info("%s/%s: changed, its children are not listed: %s", *key, errors[0])
        if all(one.retryable for one in errors):
            self._failures[key] += 1
            self._queue.add_after(key, _pause(self._failures[key]), self._lanes[key])

    async def _list_kind(self, kind: Kind, key: InputKey) -> ApiError | None:
        """List the children of one kind. Return the error, if any."""
        selector = f"{names.INPUT_LABEL}={key[1]}"
        try:
            async for obj in self._api.objects(kind, key[0], selector):
                self._put(obj)
        except ApiError as error:
            return error
        return None


class FirstWatches:
    """The watches of inputs until kopf has listed the inputs: one for each namespace.

    There are none for more than MAX_WATCHES namespaces. Then kopf's watches report all changes.
    """

    def __init__(
        self,
        api: Api,
        versions: Mapping[str | None, str],
        known: Iterable[InputKey],
        on_event: Callable[[str | None, Json], None],
    ) -> None:
        """Begin to watch.

        Args:
            api: the API server.
            versions: namespaces (None: all), and the version after which their watch begins.
            known: the inputs that exist.
            on_event: called with each event.
        """
        self._on_event, self._unlisted = on_event, set(known)
        places = versions.items() if len(versions) <= MAX_WATCHES else ()
        self.tasks = tuple(
            asyncio.create_task(watch_inputs(api, *place, self._report)) for place in places
        )

    def record(self, obj: Json) -> None:
        """Record an event of kopf's watch."""
        if obj["kind"] == KIND:
            self._unlisted.discard((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def listed(self, kind: Kind) -> None:
        """End if kopf has listed all inputs. Call this when a list of `kind` seems to have ended.

        The list may only have paused: then some inputs are not listed yet.
        """
        if kind is INPUT and not self._unlisted:
            for task in self.tasks:
                task.cancel()

    def _report(self, change: str | None, obj: Json) -> None:
        if change == "DELETED":  # kopf may never list it.
            self.record(obj)
        self._on_event(change, obj)


async def version_now(api: Api, namespace: str | None) -> str:
    """Return the version of the inputs that a watch can begin with. Raises ApiError."""
    page = await api.request("GET", INPUT.path(namespace), query={"limit": "1"})
    return str(page["metadata"]["resourceVersion"])


async def watch_inputs(
    api: Api, namespace: str | None, version: str, on_event: Callable[[str | None, Json], None]
) -> None:
    """Report the changes of inputs since `version` until cancelled.

    A watch that ends continues after its last event. If the API server does not have that version
    any more, nothing follows: kopf's watch reports the same changes later.
    """
    failed = 0
    while True:
        try:
            async for event in api.watch(INPUT, namespace, version, WATCH_SECONDS):
                if event["type"] == "ERROR":
                    raise _error(event["object"])
                version = event["object"]["metadata"].get("resourceVersion", version)
                failed = 0
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    obj = {**event["object"], "kind": KIND, "apiVersion": INPUT.api_version}
                    on_event(event["type"], obj)
        except ApiError as error:
            _log.info("the first watch of inputs ended: %s", error)
            if error.status == _GONE:
                return
        failed += 1
        await asyncio.sleep(_pause(failed))


def _error(status: Json) -> ApiError:
    """Return the error that an ERROR event reports."""
    code, reason = int(status.get("code") or 0), str(status.get("reason") or "")
    return ApiError(code, reason, str(status.get("message") or reason))


def _pause(failures: int) -> float:
    """Return the seconds to wait after a number of consecutive failures."""
    return float(min(_MIN_PAUSE_SECONDS * 2 ** min(failures - 1, 10), _MAX_PAUSE_SECONDS))
