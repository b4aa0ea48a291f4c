"""kopf lists and watches the two custom kinds. No other module imports kopf.

Only low-level events are used: no finalizers, no annotations, no other writes by kopf. kopf reports
neither where a list begins nor where it ends, so a list without objects causes no event at all. It
uses an HTTP session of this process, whose middleware stores each page of a list in the mirror.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import aiohttp
import kopf
from yarl import URL

from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.json_text import decode_list
from distributed_input_operator.kube.reflector import SILENT_SECONDS, WATCH_SECONDS, Mirror

_PAGE = 250
_LINGER_SECONDS = 0.1
"""Seconds for which kopf keeps an object and its task, to wait for more events about it."""
_STOP_SECONDS = 5.0
_GONE = 410


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


class _ListPages:
    """A middleware of kopf's session that stores the pages of its lists."""

    def __init__(self, server: str, mirrors: Sequence[Mirror]) -> None:
        root = URL(server).path.rstrip("/")
        self._mirrors = {root + one.kind.path(one.namespace): one for one in mirrors}

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request of kopf. Raises ClientPayloadError if a list must begin again."""
        response = await handler(request)
        mirror = self._mirrors.get(request.url.path)
        if mirror is None or "watch" in request.url.query:
            return response
        if response.status == _GONE:  # kopf would end, instead of listing again.
            raise aiohttp.ClientPayloadError(f"{request.url.path}: the next page has expired")
        if response.status == 200:
            if "continue" not in request.url.query:
                mirror.begin()
            mirror.add_page(decode_list(await response.read()))
        return response


async def watch(api: Api, mirrors: Sequence[Mirror], namespaces: Sequence[str]) -> None:
    """List the objects of mirrors and watch them, until SIGTERM or until cancelled.

    Args:
        api: the API server.
        mirrors: of the custom kinds, in these namespaces.
        namespaces: empty: all.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    registry, sessions = kopf.OperatorRegistry(), list[aiohttp.ClientSession]()

    async def login(**_: Any) -> kopf.AiohttpSession:
        sessions.append(api.session(_ListPages(api.server, mirrors)))
        return kopf.AiohttpSession(server=api.server, aiohttp_session=sessions[-1])

    kopf.on.login(registry=registry)(login)
    for kind in {one.kind for one in mirrors}:
        resource = (kind.group, kind.version, kind.plural)
        of = {one.namespace: one for one in mirrors if one.kind == kind}
        kopf.on.event(*resource, id=f"watch-{kind.plural}", registry=registry, when=_is_change)(
            _handler(of)
        )
    # Not kopf.operator(): at its end, it waits for tasks of others, and cancels them.
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=_settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        for session in sessions:
            await session.close()


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.queueing.idle_timeout = _LINGER_SECONDS
    settings.persistence.diffbase_storage = _NoDiffStorage()
    settings.watching.chunk_size = _PAGE
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.inactivity_timeout = SILENT_SECONDS
    # Scanning needs the right to watch all definitions and namespaces.
    settings.scanning.disabled = True
    return settings


def _is_change(event: kopf.RawEvent, **_: Any) -> bool:
    """Return whether an event is one of the watch, and not an object of a list."""
    return event["type"] is not None


def _handler(mirrors: dict[str | None, Mirror]) -> Callable[..., Any]:
    """Return the handler of the events of one kind, by namespace."""

    async def handler(event: kopf.RawEvent, namespace: str | None, **_: Any) -> None:
        mirror = mirrors.get(namespace) or mirrors[None]
        change = mirror.drop if event["type"] == "DELETED" else mirror.put
        change(dict(event["object"]))

    return handler
