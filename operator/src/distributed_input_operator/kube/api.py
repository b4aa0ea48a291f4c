"""Requests to the API server: plain JSON, a deadline on each, errors that say what to do.

They use the connections and credentials of kubernetes.aio's client, but not its typed models,
which would need hundreds of megabytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from kubernetes.aio.client import ApiClient, ApiException

from distributed_input.api import names
from distributed_input_operator import metrics
from distributed_input_operator.kube.fair_order import FairLimit
from distributed_input_operator.kube.kinds import BY_NAME, DEPLOYMENT, Kind

Json = dict[str, Any]

TIMEOUT_SECONDS = 15.0
MAX_CONCURRENT = 64
"""Maximum number of concurrent requests, of which one namespace has at most half. They keep an API
server busy without overloading it."""
_PAGE = 250
_TEXT_LENGTH = 1000
"""Maximum length of the text that is kept of a response without JSON."""
_NOT_TYPED = "failed to create typed patch object"
"""Server-side apply's message about a field that is unknown, has another type, or occurs twice.
The server responds with status 500 (kubernetes#139253), although no retry can help."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


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

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """Return one object. None: it does not exist. Raises ApiError."""
        try:
            return await self.request("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def objects(
        self, kind: Kind, namespace: str | None, selector: str = "", name: str = ""
    ) -> AsyncIterator[Json]:
        """List the objects of a kind that the operator uses. Raises ApiError.

        Args:
            kind: the kind.
            namespace: their namespace. None: all.
            selector: a label selector. Empty: that of all objects that the operator uses.
            name: list only the object of this name. Unlike `get`, this needs only the verb list.
        """
        async for item in self._items(kind, namespace, "application/json", selector, name):
            yield {**item, "kind": kind.kind, "apiVersion": kind.api_version}

    async def metadata(self, kind: Kind, namespace: str | None) -> AsyncIterator[Json]:
        """List the `metadata` of the objects of a kind that the operator uses. Raises ApiError."""
        async for item in self._items(kind, namespace, _METADATA):
            yield item["metadata"]

    async def _items(
        self, kind: Kind, namespace: str | None, accept: str, selector: str = "", name: str = ""
    ) -> AsyncIterator[Json]:
        query = {"limit": str(_PAGE)}
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        if selector or kind.selector:
            query["labelSelector"] = selector or kind.selector
        while True:
            page = await self.request(
                "GET", kind.path(namespace), query=query, headers={"Accept": accept}
            )
            for item in page.get("items") or []:  # It is null in an empty list.
                yield item
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return

    async def watch(
        self, kind: Kind, namespace: str | None, version: str, seconds: int
    ) -> AsyncIterator[Json]:
        """Yield the events of a kind after a version, for some seconds. Raises ApiError."""
        query = [("watch", "true"), ("resourceVersion", version), ("timeoutSeconds", str(seconds))]
        if kind.selector:
            query.append(("labelSelector", kind.selector))
        path = kind.path(namespace)
        try:
            serialized = await self._client.param_serialize(
                "GET",
                path,
                query_params=query,
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(*serialized, _request_timeout=seconds + 30)
            with contextlib.closing(response.response):
                if response.status >= 300:
                    raise ApiError(int(response.status), str(response.status), f"watch {path}")
                async for line in response.response.content:
                    yield json.loads(line)
        except (
            aiohttp.ClientError,
            ApiException,
            HttpProcessingError,
            OSError,
            ValueError,
        ) as error:
            # HttpProcessingError: a line that is too long for the reader. ValueError: half of one,
            # and a line that is too long in earlier versions of aiohttp.
            raise ApiError(0, "Unreachable", f"watch {path}: {error}") from error

    async def apply(self, manifest: Mapping[str, Any], subresource: str = "") -> Json:
        """Apply an object on the server side. It overrides other managers. Raises ApiError."""
        kind, meta = BY_NAME[manifest["kind"]], manifest["metadata"]
        metrics.WRITES.labels(f"{kind.plural}/{subresource}".rstrip("/")).inc()
        return await self.request(
            "PATCH",
            kind.path(meta.get("namespace"), meta["name"], subresource),
            body=manifest,
            query={"fieldManager": self._manager, "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def create(self, manifest: Mapping[str, Any]) -> Json:
        """Create an object. Raises ApiError, with reason AlreadyExists if it exists."""
        kind = BY_NAME[manifest["kind"]]
        metrics.WRITES.labels(kind.plural).inc()
        return await self.request(
            "POST",
            kind.path(manifest["metadata"]["namespace"]),
            body=manifest,
            query={"fieldManager": self._manager},
        )

    async def annotate(
        self, kind: Kind, namespace: str, name: str, values: Mapping[str, str]
    ) -> Json:
        """Set these annotations of an object, and nothing else. Raises ApiError."""
        metrics.WRITES.labels(kind.plural).inc()
        return await self.request(
            "PATCH",
            kind.path(namespace, name),
            body={"metadata": {"annotations": dict(values)}},
            query={"fieldManager": self._manager},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    async def scale(self, namespace: str, deployment: Mapping[str, Any], replicas: int) -> Json:
        """Set the number of replicas of this Deployment, and nothing else. Raises ApiError."""
        meta = deployment["metadata"]
        metrics.WRITES.labels(DEPLOYMENT.plural).inc()
        return await self.request(
            "PATCH",
            DEPLOYMENT.path(namespace, meta["name"]),
            body={"metadata": {"uid": meta["uid"]}, "spec": {"replicas": replicas}},
            query={"fieldManager": self._manager},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """Send one request. Return the JSON of the response. Raises ApiError."""
        all_headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            **(headers or {}),
        }
        try:
            async with self._limit.turn(_namespace(path)), asyncio.timeout(TIMEOUT_SECONDS):
                serialized = await self._client.param_serialize(
                    method,
                    path,
                    query_params=list((query or {}).items()),
                    header_params=all_headers,
                    body=body,
                    auth_settings=["BearerToken"],
                )
                response = await self._client.call_api(*serialized)
                data: bytes = await response.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, ApiException, OSError, TimeoutError) as error:
            message = f"{method} {path}: no response: {str(error) or type(error).__name__}"
            raise ApiError(0, "Unreachable", message) from error
        return _parse_response(method, path, int(response.status), data)


def _namespace(path: str) -> str:
    """Return the namespace in the path of a request. Empty: it has none."""
    return path.partition("/namespaces/")[2].partition("/")[0]


def _parse_response(method: str, path: str, status: int, data: bytes) -> Json:
    try:
        answer: Json = json.loads(data)
    except ValueError:
        answer = {"message": data[:_TEXT_LENGTH].decode(errors="replace")}
    if status < 300:
        return answer
    reason = str(answer.get("reason") or status)
    raise ApiError(status, reason, f"{method} {path}: {answer.get('message') or reason}")
