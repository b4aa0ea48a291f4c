"""The watches, by kopf: the only file that imports it. Every body is one call.

Low-level events alone: no finalizers, no annotations, nothing that kopf would write. No index
either: until everything is listed, it would keep each object as it came, and a task for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import aiohttp
import kopf

from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.kube.store import Json

Told = Callable[[str | None, Json], None]
Listed = Callable[[Kind, str | None], None]

_PAGE = 50
_LINGER_SECONDS = 0.1
"""So long kopf keeps an object, and a task for it, in case that more is told of it."""


class _NothingKept(kopf.DiffBaseStorage):
    """Changes are not handled, so nobody asks what an object was before: to copy each is half of
    what kopf does for an event.
    """

    def fetch(self, **_: Any) -> None:
        return None

    def build(self, **_: Any) -> kopf.BodyEssence:
        return cast(kopf.BodyEssence, {})

    def store(self, **_: Any) -> None:
        return None


class _Requests:
    """Finds out from kopf's requests when a watch begins after a list: kopf does not report it."""

    def __init__(self, kinds: Sequence[Kind], namespaces: Sequence[str], listed: Listed) -> None:
        self._places = {
            kind.path(namespace): (kind, namespace)
            for kind in kinds
            for namespace in ((None,) if kind.cluster_scoped else namespaces or (None,))
        }
        self._listed = listed
        self._lists: set[str] = set()

    def sent(self, path: str, *, watches: bool) -> None:
        """Take in a request to list or watch; `listed` gets the first watch after a list."""
        # The API server's own address may have a path, which comes first.
        place = next((one for one in self._places if path.endswith(one)), None)
        if place is None:
            return
        if not watches:
            self._lists.add(place)
        elif place in self._lists:
            self._lists.remove(place)
            self._listed(*self._places[place])


async def watch(
    kinds: Sequence[Kind], namespaces: Sequence[str], told: Told, listed: Listed
) -> None:
    """Watch `kinds` until cancelled, in `namespaces`, or everywhere where there are none.

    `told` gets each event: None (it was there before), ADDED, MODIFIED or DELETED.
    `listed` gets the kind and namespace (None: all) of each watch that begins after a list: at the
    start, and when the API server does not have the watch's version any more. No event reports the
    objects that were deleted before such a list.
    """
    logging.getLogger("kopf").setLevel(logging.WARNING)
    registry = kopf.OperatorRegistry()
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.queueing.idle_timeout = _LINGER_SECONDS
    settings.persistence.diffbase_storage = _NothingKept()
    settings.watching.chunk_size = _PAGE
    # Or it would need the right to watch all definitions and namespaces.
    settings.scanning.disabled = True
    kopf.on.login(registry=registry)(_login(_Requests(kinds, namespaces, listed)))
    for kind in kinds:
        resource = (kind.group, kind.version, kind.plural)
        if kind.selector:
            settings.watching.label_selectors[resource] = kind.selector
        kopf.on.event(*resource, id=f"watch-{kind.plural}", registry=registry)(_teller(told))
    await kopf.operator(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )


def _login(requests: _Requests) -> Callable[..., Any]:
    """Log in with a session that reports each request to `requests`."""
    sessions: list[tuple[kopf.ConnectionInfo, kopf.AiohttpSession]] = []

    async def login(**context: Any) -> kopf.AiohttpSession | None:
        info = kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)
        if info is None:
            return None
        # kopf refuses credentials that failed before, so equal ones must be the same session.
        if not sessions or sessions[0][0] != info:
            sessions[:] = [(info, _session(info, requests))]
        return sessions[0][1]

    return login


def _session(info: kopf.ConnectionInfo, requests: _Requests) -> kopf.AiohttpSession:
    """As kopf makes it from `info`, and traced. kopf closes it."""

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


def _teller(told: Told) -> Callable[..., Any]:
    async def handler(event: kopf.RawEvent, **_: Any) -> None:
        told(event["type"], dict(event["object"]))

    return handler
