"""Apply changes of inputs while a new leader lists their children, which may take half a minute.

The inputs are listed first, and watched from then on. As long as the children are not listed, those
of each input that changes are listed alone. Inputs that changed before wait for the list of all:
they may be thousands, and each of these lists costs as much as a part of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from distributed_input.api import names
from distributed_input_operator.budget.claim import InputKey, namespace_of
from distributed_input_operator.controller.work_queue import WorkQueue
from distributed_input_operator.kube.api import Api, ApiError, backoff
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import INPUT, POLICY
from distributed_input_operator.objects.kind import Kind

_log = logging.getLogger(__name__)

_MAX_PAUSE_SECONDS = 8.0
"""Maximum time before a request that failed is repeated."""
_CONCURRENT = 16
"""Inputs whose children are listed at the same time, beside the list of all. One namespace has at
most half of them."""


class FirstChanges:
    """Changed inputs of a new leader, before it knows the children of all inputs."""

    def __init__(
        self,
        api: Api,
        kinds: Sequence[Kind],
        put: Callable[[Json], InputKey | None],
        ready: Callable[[InputKey], None],
    ) -> None:
        """Create without changes.

        Args:
            api: the API server.
            kinds: the kinds that the operator watches.
            put: called with each child that is listed.
            ready: called with each input whose children are listed.
        """
        self._api, self._put, self._ready = api, put, ready
        self._children = tuple(kind for kind in kinds if kind not in (INPUT, POLICY))
        self._queue: WorkQueue[InputKey] = WorkQueue(namespace_of, _CONCURRENT)
        self._failures: Counter[InputKey] = Counter()
        self._complete: set[InputKey] = set()
        """Inputs whose children are known."""

    def add(self, key: InputKey) -> None:
        """List the children of a changed input, then report it as ready.

        If the API server refuses to list them, its next change lists them again.
        """
        if key in self._complete:
            self._ready(key)
        else:
            self._queue.add(key)

    async def run(self) -> None:
        """List until cancelled, because all children are known."""
        await self._queue.run(self._list)

    async def _list(self, key: InputKey) -> None:
        if key in self._complete:  # It has changed again meanwhile.
            return
        # Together: each waits until the API server's cache has all earlier writes.
        lists = (self._list_kind(kind, key) for kind in self._children)
        errors = [one for one in await asyncio.gather(*lists) if one is not None]
        if not errors:
            self._complete.add(key)
            self._ready(key)
            return
        _log.info("%s/%s: changed, its children are not listed: %s", *key, errors[0])
        if all(one.retryable for one in errors):
            self._failures[key] += 1
            self._queue.add_after(key, backoff(self._failures[key], _MAX_PAUSE_SECONDS))

    async def _list_kind(self, kind: Kind, key: InputKey) -> ApiError | None:
        """List the children of one kind. Return the error, if any."""
        selector = f"{names.INPUT_LABEL}={key[1]}"
        try:
            async for obj in self._api.objects(kind, key[0], selector):
                self._put(obj)
        except ApiError as error:
            return error
        return None
