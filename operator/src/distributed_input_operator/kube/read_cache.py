"""Objects as they were read a moment ago: a Job's pods come by the hundred and ask for the same."""

from __future__ import annotations

import asyncio
from typing import Protocol

from distributed_input_operator.kube.api import Json
from distributed_input_operator.kube.kinds import Kind

SECONDS = 1.0
"""A pod could as well have come so much earlier."""


class Reader(Protocol):
    """What is asked; `api.Api`."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None: ...


class Recent:
    """Reads an object once for all who ask within a second; what is not there is asked anew."""

    def __init__(self, api: Reader) -> None:
        self._api = api
        self._reads: dict[str, asyncio.Task[Json | None]] = {}

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """One object, not to be changed; None where there is none. Raises ApiError."""
        path = kind.path(namespace, name)
        read = self._reads.get(path)
        if read is None:
            read = asyncio.create_task(self._api.get(kind, namespace, name))
            self._reads[path] = read
            read.add_done_callback(lambda done: self._read(path, done))
        # Who gives up must not take it from the others.
        return await asyncio.shield(read)

    def _read(self, path: str, done: asyncio.Task[Json | None]) -> None:
        if done.cancelled() or done.exception() or done.result() is None:
            del self._reads[path]
        else:
            asyncio.get_running_loop().call_later(SECONDS, self._reads.pop, path)
