"""The watches, by kopf. No other module imports kopf.

Only low-level events are used: no finalizers, no annotations, no other writes by kopf. There is no
kopf index either: it would keep each whole object and a task for it until the list is complete.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import aiohttp
import kopf

from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.kube.store import Json

EventHandler = Callable[[str | None, Json], None]
ListHandler = Callable[[Kind, str | None], None]

_PAGE = 50
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


class _RequestTracker:
    """Detect from kopf's requests that a watch begins after a list, which kopf does not report."""

    def __init__(
        self, kinds: Sequence[Kind], namespaces: Sequence[str], on_list: ListHandler
    ) -> None:
        self._places = {
            kind.path(namespace): (kind, namespace)
            for kind in kinds
            for namespace in ((None,) if kind.cluster_scoped else namespaces or (None,))
        }
        self._on_list = on_list
        self._lists: set[str] = set()

    def sent(self, path: str, *, watches: bool) -> None:
        """Record a list or watch request. Report the first watch after a list."""
        # The URL of the API server may have a path, which comes first.
        place = next((one for one in self._places if path.endswith(one)), None)
        if place is None:
            return
        if not watches:
            self._lists.add(place)
        elif place in self._lists:
            self._lists.remove(place)
            self._on_list(*self._places[place])


async def watch(
    kinds: Sequence[Kind], namespaces: Sequence[str], on_event: EventHandler, on_list: ListHandler
) -> None:
    """Watch kinds of objects until cancelled.

    Args:
        kinds: the kinds to watch.
        namespaces: the namespaces to watch. Empty: all.
        on_event: called with each event: None (the object existed before), ADDED, MODIFIED or
            DELETED.
        on_list: called with the kind and namespace (None: all) of each watch that begins after a
            list: at the start, and when the API server has dropped the watch's version. No event
            reports the objects that were deleted before such a list.
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
    kopf.on.login(registry=registry)(_login(_RequestTracker(kinds, namespaces, on_list)))
    for kind in kinds:
        resource = (kind.group, kind.version, kind.plural)
        if kind.selector:
            settings.watching.label_selectors[resource] = kind.selector
        kopf.on.event(*resource, id=f"watch-{kind.plural}", registry=registry)(_handler(on_event))
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _login(requests: _RequestTracker) -> Callable[..., Any]:
    """Log in with a session that reports each request to `requests`."""
    sessions: list[tuple[kopf.ConnectionInfo, kopf.AiohttpSession]] = []

    async def login(**context: Any) -> kopf.AiohttpSession | None:
        info = kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)
        if info is None:
            return None
        # kopf refuses credentials that failed before, so equal credentials must share a session.
        if not sessions or sessions[0][0] != info:
            sessions[:] = [(info, _session(info, requests))]
        return sessions[0][1]

    return login


def _session(info: kopf.ConnectionInfo, requests: _RequestTracker) -> kopf.AiohttpSession:
    """Return a session as kopf creates it from `info`, with a trace. kopf closes it."""

    async def sent(_: object, __: object, request: aiohttp.TraceRequestStartParams) -> None:
        requests.sent(request.url.path, watches="watch" in request.url.query)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(sent)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
        headers=info.as_http_headers(),
        proxy=info.proxy_url,
        trust_env=info.trust_env,
        trace_configs=[trace],
    )
    return kopf.AiohttpSession(
        server=info.server,
        default_namespace=info.default_namespace,
        priority=info.priority,
        aiohttp_session=session,
    )


def _handler(on_event: EventHandler) -> Callable[..., Any]:
    async def handler(event: kopf.RawEvent, **_: Any) -> None:
        on_event(event["type"], dict(event["object"]))

    return handler
