"""The watches, by kopf. No other module imports kopf.

Only low-level events are used: no finalizers, no annotations, no other writes by kopf. There is no
kopf index either: it would keep each whole object and a task for it until the list is complete.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory

from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.kube.store import Json

EventHandler = Callable[[str | None, Json], None]
ListHandler = Callable[[Kind, str | None], None]

_PAGE = 50
_START_SECONDS = 5.0
"""Time after the start in which the first lists of kinds without objects end."""
_LIST_SECONDS = 1.0
"""A list has ended if no object of it came for so long."""
_LINGER_SECONDS = 0.1
"""Seconds for which kopf keeps an object and its task, to wait for more events about it."""


class _NoDiffStorage(kopf.DiffBaseStorage):
    """A store of previous objects that stores nothing.

    The operator does not use kopf's diffs, and copying objects is half of kopf's work per event.
    """

    def fetch(self, **_: Any) -> None:
        return None

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast(kopf.BodyEssence, {})

    def store(self, **_: Any) -> None:
        return None


class _NoMemories(ResourceMemories):
    """A store of kopf's notes about objects that keeps none.

    kopf keeps 0.9 KiB for each object. Only daemons, timers and handlers of changes need it.
    """

    async def recall(self, raw_body: kopf.RawBody, **context: Any) -> ResourceMemory:
        return await super().recall(raw_body, **{**context, "ephemeral": True})


class _ListTracker:
    """Detect from kopf's events that a list has ended, which kopf does not report.

    The objects of a list come as events without a type, before the watch that continues the list.
    A list without objects causes no event, so `on_list` is also called once for every kind after
    the start.
    """

    def __init__(
        self, kinds: Sequence[Kind], namespaces: Sequence[str], on_list: ListHandler
    ) -> None:
        self._places = [
            (kind, namespace)
            for kind in kinds
            for namespace in ((None,) if kind.cluster_scoped else namespaces or (None,))
        ]
        self._on_list = on_list
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Report every kind once, when its first list has ended."""
        for kind in {kind.kind for kind, _ in self._places}:
            self._schedule(kind, _START_SECONDS)

    def add(self, kind: str, event_type: str | None) -> None:
        """Record an event of an object of `kind`."""
        if event_type is None:
            self._schedule(kind, _LIST_SECONDS)

    def _schedule(self, kind: str, seconds: float) -> None:
        if timer := self._timers.get(kind):
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[kind] = loop.call_later(seconds, self._report, kind)

    def _report(self, kind: str) -> None:
        self._timers.pop(kind, None)
        for place in self._places:
            if place[0].kind == kind:
                self._on_list(*place)


async def watch(
    kinds: Sequence[Kind], namespaces: Sequence[str], on_event: EventHandler, on_list: ListHandler
) -> None:
    """Watch kinds of objects until cancelled.

    Args:
        kinds: the kinds to watch.
        namespaces: the namespaces to watch. Empty: all.
        on_event: called with each event: None (the object existed before), ADDED, MODIFIED or
            DELETED.
        on_list: called with the kind and namespace (None: all) after each list: at the start, and
            when the API server has dropped the watch's version. No event reports the objects that
            were deleted before such a list.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.queueing.idle_timeout = _LINGER_SECONDS
    settings.persistence.diffbase_storage = _NoDiffStorage()
    settings.watching.chunk_size = _PAGE
    # Scanning needs the right to watch all definitions and namespaces.
    settings.scanning.disabled = True
    kopf.on.login(registry=registry)(_login)
    lists = _ListTracker(kinds, namespaces, on_list)
    lists.start()
    for kind in kinds:
        resource = (kind.group, kind.version, kind.plural)
        if kind.selector:
            settings.watching.label_selectors[resource] = kind.selector
        kopf.on.event(*resource, id=f"watch-{kind.plural}", registry=registry)(
            _handler(on_event, lists, kind.kind)
        )
    await kopf.operator(
        registry=registry,
        settings=settings,
        memories=_NoMemories(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _login(**context: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)


def _handler(on_event: EventHandler, lists: _ListTracker, kind: str) -> Callable[..., Any]:
    async def handler(event: kopf.RawEvent, **_: Any) -> None:
        lists.add(kind, event["type"])
        on_event(event["type"], dict(event["object"]))

    return handler
