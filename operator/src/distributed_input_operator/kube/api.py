"""Requests to the API server: plain JSON, a deadline on each, errors that say what to do.

They use the connections and credentials of kubernetes.aio's client, but not its typed models,
which would need hundreds of megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from kubernetes.aio.client import ApiClient, ApiException

from distributed_input.api import names
from distributed_input_operator import metrics
from distributed_input_operator.kube.fair_order import FairLimit
from distributed_input_operator.kube.json_text import Json, decode, decode_list
from distributed_input_operator.kube.kinds import BY_NAME, DEPLOYMENT
from distributed_input_operator.objects.kind import Kind

TIMEOUT_SECONDS = 15.0
MAX_CONCURRENT = 64
"""Maximum number of concurrent requests, of which one namespace has at most half. They keep an API
server busy without overloading it."""
_PAGE = 250
_MIN_BACKOFF_SECONDS = 0.5
_TEXT_LENGTH = 1000
"""Maximum length of the text that is kept of a response without JSON."""
_NOT_TYPED = "failed to create typed patch object"
"""Server-side apply's message about a field that is unknown, has another type, or occurs twice.
The server responds with status 500 (kubernetes#139253), although no retry can help."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached.

    Attributes:
        status: HTTP status. 0: no response.
        reason: Kubernetes' reason, such as AlreadyExists.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later without a change by the user."""
        if _NOT_TYPED in str(self):
            return False
        return self.status in (0, 408, 409, 410, 429) or self.status >= 500


class Api:
    """A client of one API server."""

    def __init__(
        self,
        client: ApiClient,
        max_concurrent: int = MAX_CONCURRENT,
        manager: str = names.OPERATOR,
    ) -> None:
        """Create a client.

        Args:
            client: connections and credentials.
            max_concurrent: maximum number of concurrent requests. Others wait in this process, and
                their deadline starts only when they are sent. Namespaces take turns.
            manager: the field manager of all writes.
        """
        self._client = client
        self._manager = manager
        self._limit = FairLimit(max_concurrent)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return str(self._client.configuration.host)

    def session(self, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """Return a session for another client of the API server, with own connections.

        Args:
            middleware: gets each request of that client.
        """
        connector = aiohttp.TCPConnector(ssl=self._client.rest_client.ssl_context, limit=0)
        return aiohttp.ClientSession(
            connector=connector,
            proxy=self._client.configuration.proxy,
            trust_env=True,
            middlewares=(middleware, self._authorize),
        )

    async def _authorize(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        settings = await self._client.configuration.auth_settings()
        if token := settings.get("BearerToken"):
            request.headers["Authorization"] = str(token["value"])
        return await handler(request)

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """Return one object. None: it does not exist. Raises ApiError."""
        try:
            return await self.request("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def objects(
        self, kind: Kind, namespace: str | None, selector: str = ""
    ) -> AsyncIterator[Json]:
        """List the objects of a kind that the operator uses. Raises ApiError.

        Args:
            kind: the kind.
            namespace: their namespace. None: all.
            selector: a label selector. Empty: that of all objects that the operator uses.
        """
        async for page in self.pages(kind, namespace, selector):
            for item in page["items"]:
                yield {**item, "kind": kind.kind, "apiVersion": kind.api_version}

    async def pages(
        self, kind: Kind, namespace: str | None, selector: str = ""
    ) -> AsyncIterator[Json]:
        """List the objects of a kind page by page. The arguments and errors are those of `objects`.

        All pages show the same version. A status of 410 means that the API server does not have it
        any more.
        """
        query = {"limit": str(_PAGE)}
        if selector or kind.selector:
            query["labelSelector"] = selector or kind.selector
        while True:
            path = kind.path(namespace)
            page = await self.request("GET", path, query=query, parse=decode_list)
            yield page
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return

    async def watch(
        self, kind: Kind, namespace: str | None, version: str, seconds: int, silent: float
    ) -> AsyncIterator[Json]:
        """Yield the events of a kind after a version, and bookmarks. Raises ApiError.

        Args:
            kind: the kind.
            namespace: their namespace. None: all.
            version: the version after which it begins.
            seconds: time after which the API server ends it.
            silent: maximum seconds between two events.
        """
        query = [("watch", "true"), ("resourceVersion", version), ("timeoutSeconds", str(seconds))]
        query.append(("allowWatchBookmarks", "true"))
        if kind.selector:
            query.append(("labelSelector", kind.selector))
        path = kind.path(namespace)
        timeout = aiohttp.ClientTimeout(total=seconds + TIMEOUT_SECONDS, sock_read=silent)
        try:
            response = await self._send("GET", path, query, timeout=timeout)
            with contextlib.closing(response.response):
                if response.status >= 300:
                    data: bytes = await response.read()
                    _parse_response("watch", path, int(response.status), data)
                async for line in response.response.content:
                    event = decode(line)
                    if event["type"] == "ERROR":
                        raise _error("watch", path, event["object"])
                    yield event
        except (
            aiohttp.ClientError,
            ApiException,
            HttpProcessingError,
            OSError,
            ValueError,
        ) as error:
            # HttpProcessingError: a line that is too long for the reader. ValueError: half of one,
            # and a line that is too long in earlier versions of aiohttp.
            message = f"watch {path}: {str(error) or type(error).__name__}"
            raise ApiError(0, "Unreachable", message) from error

    async def apply(self, manifest: Mapping[str, Any], subresource: str = "") -> Json:
        """Apply an object on the server side. It overrides other managers. Raises ApiError."""
        kind, meta = BY_NAME[manifest["kind"]], manifest["metadata"]
        place = meta.get("namespace"), meta["name"], subresource
        return await self._write("PATCH", kind, place, manifest, "apply-patch+yaml", force="true")

    async def create(self, manifest: Mapping[str, Any]) -> Json:
        """Create an object. Raises ApiError, with reason AlreadyExists if it exists."""
        kind, place = BY_NAME[manifest["kind"]], (manifest["metadata"]["namespace"],)
        return await self._write("POST", kind, place, manifest, "json")

    async def annotate(
        self, kind: Kind, namespace: str, name: str, values: Mapping[str, str]
    ) -> Json:
        """Set these annotations of an object, and nothing else. Raises ApiError."""
        changes = {"metadata": {"annotations": dict(values)}}
        return await self._write("PATCH", kind, (namespace, name), changes, "merge-patch+json")

    async def scale(self, namespace: str, deployment: Mapping[str, Any], replicas: int) -> Json:
        """Set the number of replicas of this Deployment, and nothing else. Raises ApiError."""
        meta = deployment["metadata"]
        changes = {"metadata": {"uid": meta["uid"]}, "spec": {"replicas": replicas}}
        place = namespace, meta["name"]
        return await self._write("PATCH", DEPLOYMENT, place, changes, "merge-patch+json")

    async def _write(
        self,
        method: str,
        kind: Kind,
        place: tuple[str, ...],
        body: Mapping[str, Any],
        content: str,
        **query: str,
    ) -> Json:
        """Write as the field manager, and count it. `place` has the arguments of `Kind.path`."""
        metrics.WRITES.labels("/".join((kind.plural, *place[2:])).rstrip("/")).inc()
        return await self.request(
            method,
            kind.path(*place),
            body=body,
            query={"fieldManager": self._manager, **query},
            headers={"Content-Type": f"application/{content}"},
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        parse: Callable[[bytes], Json] = decode,
    ) -> Json:
        """Send one request. Return the JSON of the response. Raises ApiError."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        try:
            async with self._limit.turn(_namespace(path)), asyncio.timeout(TIMEOUT_SECONDS):
                response = await self._send(method, path, [*(query or {}).items()], sent, body)
                data: bytes = await response.read()
        except (aiohttp.ClientError, ApiException, OSError, TimeoutError) as error:
            message = f"{method} {path}: no response: {str(error) or type(error).__name__}"
            raise ApiError(0, "Unreachable", message) from error
        return _parse_response(method, path, int(response.status), data, parse)

    async def _send(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> Any:
        serialized = await self._client.param_serialize(
            method,
            path,
            query_params=query,
            header_params={"Accept": "application/json", **(headers or {})},
            body=body,
            auth_settings=["BearerToken"],
        )
        return await self._client.call_api(*serialized, _request_timeout=timeout)


def _namespace(path: str) -> str:
    """Return the namespace in the path of a request. Empty: it has none."""
    return path.partition("/namespaces/")[2].partition("/")[0]


def _parse_response(
    method: str, path: str, status: int, data: bytes, parse: Callable[[bytes], Json] = decode
) -> Json:
    try:
        answer = parse(data)
    except ValueError:
        text = data[:_TEXT_LENGTH].decode(errors="replace")
        if status < 300:  # of a proxy
            raise ApiError(0, "Unreachable", f"{method} {path}: no JSON: {text!r}") from None
        answer = {"message": text}
    if status < 300:
        return answer
    raise _error(method, path, {"code": status, **answer})


def backoff(failures: int, longest: float) -> float:
    """Return the seconds to wait after a number of consecutive failures: 0.5, 1, 2 and so on."""
    return float(min(_MIN_BACKOFF_SECONDS * 2 ** min(failures - 1, 10), longest))


def _error(method: str, path: str, status: Json) -> ApiError:
    """Return the error that a Status reports."""
    code = int(status.get("code") or 0)
    reason = str(status.get("reason") or code)
    return ApiError(code, reason, f"{method} {path}: {status.get('message') or reason}")
