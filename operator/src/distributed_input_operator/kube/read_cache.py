"""A cache of recent reads: the pods of a Job come by the hundred and need the same objects."""

from __future__ import annotations

import asyncio

from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.objects.kind import Kind

SECONDS = 1.0
"""Age up to which a read is used again. The pod could as well have come that much earlier."""


class ReadCache:
    """Share one read of an object among all callers within a second.

    A failed read, or an object that does not exist, is read again for the next caller.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._reads: dict[tuple[str, str], asyncio.Task[Json | None]] = {}

    async def get(self, kind: Kind, namespace: str, name: str, uid: str = "") -> Json | None:
        """Return one object, which must not be changed. None: it does not exist.

        Raises ApiError.

        Args:
            kind: of the object.
            namespace: of the object.
            name: of the object.
            uid: of the object. Another object of this name is not returned. Empty: any.
        """
        key = kind.path(namespace, name), uid
        read = self._reads.get(key)
        if read is None:
            read = asyncio.create_task(self._api.get(kind, namespace, name))
            self._reads[key] = read
            read.add_done_callback(lambda done: self._expire(key, done))
        # A cancelled caller must not cancel the read of the others.
        found = await asyncio.shield(read)
        return None if found and uid and found["metadata"]["uid"] != uid else found

    def _expire(self, key: tuple[str, str], done: asyncio.Task[Json | None]) -> None:
        if done.cancelled() or done.exception() or done.result() is None:
            del self._reads[key]
        else:
            asyncio.get_running_loop().call_later(SECONDS, self._reads.pop, key)
