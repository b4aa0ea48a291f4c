"""Calls to the API server: plain JSON in and out, a deadline on each, errors that say what to do.

On kubernetes.aio's client, for its connections and credentials; its typed models would cost
hundreds of megabytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient, ApiException

from distributed_input.api import names
from distributed_input_operator import metrics
from distributed_input_operator.kube.kinds import BY_NAME, Kind

Json = dict[str, Any]

TIMEOUT_SECONDS = 15.0
AT_ONCE = 32
"""Enough to keep an API server busy; far fewer than it takes from all its clients together."""
_PAGE = 250
_TEXT_LENGTH = 1000
"""So much is kept of an answer that is no JSON."""
_NOT_TYPED = "failed to create typed patch object"
"""Server-side apply's words for a field that is not there, has another type, or is there twice. The
server answers them with 500 (kubernetes#139253), though no retry can help."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiError(Exception):
    """The API server refused, or could not be reached.

    Attributes:
        status: of HTTP; 0 where there was no answer.
        reason: Kubernetes' word for it, such as AlreadyExists.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed a little later without anyone's help."""
        if _NOT_TYPED in str(self):
            return False
        return self.status in (0, 408, 409, 410, 429) or self.status >= 500


class Api:
    """One API server."""

    def __init__(self, client: ApiClient, at_once: int = AT_ONCE) -> None:
        """`at_once`: so many requests are on their way at a time; the others wait here, not there,
        and the time in which they must be answered does not run yet.
        """
        self._client = client
        self._gate = asyncio.Semaphore(at_once)

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """One object; None where there is none. Raises ApiError."""
        try:
            return await self.request("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def objects(self, kind: Kind, namespace: str | None) -> AsyncIterator[Json]:
        """All objects of a kind that are of interest. Raises ApiError."""
        async for item in self._items(kind, namespace, "application/json"):
            yield {**item, "kind": kind.kind, "apiVersion": kind.api_version}

    async def metadata(self, kind: Kind, namespace: str | None) -> AsyncIterator[Json]:
        """The `metadata` of all objects of a kind that are of interest. Raises ApiError."""
        async for item in self._items(kind, namespace, _METADATA):
            yield item["metadata"]

    async def _items(self, kind: Kind, namespace: str | None, accept: str) -> AsyncIterator[Json]:
        query = {"limit": str(_PAGE)}
        if kind.selector:
            query["labelSelector"] = kind.selector
        while True:
            page = await self.request(
                "GET", kind.path(namespace), query=query, headers={"Accept": accept}
            )
            for item in page.get("items") or []:  # null where there are none
                yield item
            query["continue"] = page["metadata"].get("continue", "")
            if not query["continue"]:
                return

    async def apply(
        self, manifest: Mapping[str, Any], subresource: str = "", manager: str = names.OPERATOR
    ) -> Json:
        """Server-side apply; what others set against us is set back. Raises ApiError."""
        kind, meta = BY_NAME[manifest["kind"]], manifest["metadata"]
        metrics.WRITES.labels(f"{kind.plural}/{subresource}".rstrip("/")).inc()
        return await self.request(
            "PATCH",
            kind.path(meta.get("namespace"), meta["name"], subresource),
            body=manifest,
            query={"fieldManager": manager, "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    async def create(self, manifest: Mapping[str, Any]) -> Json:
        """Create, never change. Raises ApiError, with reason AlreadyExists where it is there."""
        kind = BY_NAME[manifest["kind"]]
        metrics.WRITES.labels(kind.plural).inc()
        return await self.request(
            "POST",
            kind.path(manifest["metadata"]["namespace"]),
            body=manifest,
            query={"fieldManager": names.OPERATOR},
        )

    async def annotate(
        self, kind: Kind, namespace: str, name: str, values: Mapping[str, str]
    ) -> Json:
        """Set annotations of an object that is not ours to apply. Raises ApiError."""
        metrics.WRITES.labels(kind.plural).inc()
        return await self.request(
            "PATCH",
            kind.path(namespace, name),
            body={"metadata": {"annotations": dict(values)}},
            query={"fieldManager": names.OPERATOR},
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
        """One call; the answer's JSON. Raises ApiError."""
        sent = {"Accept": "application/json", "Content-Type": "application/json", **(headers or {})}
        try:
            async with self._gate, asyncio.timeout(TIMEOUT_SECONDS):
                serialized = await self._client.param_serialize(
                    method,
                    path,
                    query_params=list((query or {}).items()),
                    header_params=sent,
                    body=body,
                    auth_settings=["BearerToken"],
                )
                answer = await self._client.call_api(*serialized)
                data: bytes = await answer.read()  # type: ignore[no-untyped-call]
        except (aiohttp.ClientError, ApiException, OSError, TimeoutError) as error:
            what = f"{method} {path}: no answer: {str(error) or type(error).__name__}"
            raise ApiError(0, "Unreachable", what) from error
        return _checked(method, path, int(answer.status), data)


def _checked(method: str, path: str, status: int, data: bytes) -> Json:
    try:
        answer: Json = json.loads(data)
    except ValueError:
        answer = {"message": data[:_TEXT_LENGTH].decode(errors="replace")}
    if status < 300:
        return answer
    reason = str(answer.get("reason") or status)
    raise ApiError(status, reason, f"{method} {path}: {answer.get('message') or reason}")
