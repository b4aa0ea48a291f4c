"""Events in, looks at inputs out: the queue between the watches and `reconcile`."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from distributed_input.api.resource.input import KIND
from distributed_input.api.resource.policy import POLICY_KIND
from distributed_input_operator import metrics
from distributed_input_operator.controller import budgets
from distributed_input_operator.controller.observe import Sources
from distributed_input_operator.controller.reconcile import reconcile
from distributed_input_operator.controller.resync import Resync
from distributed_input_operator.controller.work_queue import WorkQueue
from distributed_input_operator.kube import watch as handlers
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import Kind
from distributed_input_operator.kube.store import POLICY_KEY, InputKey, Json

_log = logging.getLogger(__name__)

WORKERS = 64
"""Looks at a time: most of each is waiting, of those at dispatchers that are silent two seconds."""
LOOK_SECONDS = 60.0
"""A look at one input that takes longer has hung."""
RESYNC_SECONDS = 120.0
_RESYNC_SHARE = 20
"""Where there is so much that listing takes long, it comes as seldom as so many times that."""
GATHER_SECONDS = 0.5
"""What is told of an input's children within so long is looked at together: they change by the
dozen, as pods come up.
"""
_STOP_SECONDS = 5.0
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 60.0


class Controller:
    """Works on all inputs of `namespaces` (of all where there are none)."""

    def __init__(
        self,
        sources: Sources,
        kinds: Sequence[Kind],
        namespaces: Sequence[str],
        may_write: Callable[[], bool],
        resync_seconds: float = RESYNC_SECONDS,
    ) -> None:
        """`kinds` are watched; `may_write` is asked before each look: False ends the process."""
        self._resync_seconds = resync_seconds
        self._sources = sources
        self._kinds = tuple(kinds)
        self._namespaces = tuple(namespaces)
        self._may_write = may_write
        self._queue: WorkQueue[InputKey] = WorkQueue()
        self._failures: dict[InputKey, int] = {}
        self._listed: asyncio.Queue[tuple[Kind, str | None]] = asyncio.Queue()
        self._resync = Resync(
            sources.api, sources.store, kinds, self._namespaces or (None,), self._queue.add
        )

    @property
    def dead_watches(self) -> tuple[str, ...]:
        """Kinds whose watch does not deliver."""
        return self._resync.dead

    async def run(self) -> None:
        """Work until SIGTERM, which kopf listens to, or until cancelled; raises what goes wrong."""
        await self._list()
        watching = handlers.watch(
            self._kinds, self._namespaces, self._told, lambda *place: self._listed.put_nowait(place)
        )
        weighing = budgets.weigh_forever(self._sources, self._queue.add)
        working = [self._work_forever() for _ in range(WORKERS)]
        tasks = [
            asyncio.create_task(one)
            for one in (
                *(watching, weighing, self._resync_forever(), self._drop_missing_forever()),
                *working,
            )
        ]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        for task in ended:
            task.result()

    async def _list(self) -> None:
        """Know all that there is before the first look, which would make what it does not see.

        The watches list again: `_drop_missing_forever` drops what was deleted in between.
        """
        await _until_listed(self._list_once)
        budgets.enter_all(self._sources)
        for key in (POLICY_KEY, *self._sources.store.known()):
            self._queue.add(key)

    async def _list_once(self) -> None:
        for kind in self._kinds:
            everywhere = kind.cluster_scoped or not self._namespaces
            for namespace in (None,) if everywhere else self._namespaces:
                async for obj in self._sources.api.objects(kind, namespace):
                    self._put(obj)

    def _put(self, obj: Json) -> InputKey | None:
        self._resync.told(obj)
        return self._sources.store.put(obj)

    def _told(self, kind: str | None, obj: Json) -> None:
        if kind == "DELETED":
            self._resync.told(obj, gone=True)
            key = self._sources.store.drop(obj)
        else:
            key = self._put(obj)
        if key is None:  # most often the echo of our own write
            return
        if obj["kind"] in (KIND, POLICY_KIND):
            self._queue.add(key)
        else:
            self._queue.add_after(key, GATHER_SECONDS)

    async def _drop_missing_forever(self) -> None:
        while True:
            kind, namespace = await self._listed.get()
            await _until_listed(partial(self._resync.drop_missing, kind, namespace))

    async def _resync_forever(self) -> None:
        while True:
            pause = max(self._resync_seconds, _RESYNC_SHARE * self._resync.listing_seconds)
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))
            try:
                await self._resync.check()
            except ApiError as error:
                _log.warning("resync failed, will be tried again: %s", error)
            if self._resync.dead:
                _log.error("no events of %s arrive: restarting", ", ".join(self._resync.dead))

    async def _work_forever(self) -> None:
        while True:
            key = await self._queue.get()
            if not self._may_write():
                _log.critical("the lease was not renewed in time: another replica may lead")
                os._exit(1)
            try:
                await self._look(key)
            finally:
                self._queue.done(key)

    async def _look(self, key: InputKey) -> None:
        try:
            # Not wait_for: in 3.11 that may swallow the cancellation at the end.
            with metrics.SECONDS.time():
                async with asyncio.timeout(LOOK_SECONDS):
                    again = await reconcile(self._sources, key)
        except Exception as error:  # noqa: BLE001 - one input's trouble is no other's
            self._failed(key, error)
            return
        metrics.RECONCILES.labels("ok").inc()
        self._failures.pop(key, None)
        if again is None:
            self._queue.forget(key)
        else:
            self._queue.add_after(key, again * random.uniform(0.9, 1.1))

    def _failed(self, key: InputKey, error: Exception) -> None:
        metrics.RECONCILES.labels("failed").inc()
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = _backoff(count)
        expected = isinstance(error, ApiError | TimeoutError)
        _log.warning(
            "%s/%s: will be tried again in %.1f s: %s",
            *key,
            delay,
            str(error) or type(error).__name__,
            exc_info=None if expected else error,
        )
        self._queue.add_after(key, delay * random.uniform(0.5, 1.0))


async def _until_listed(listing: Callable[[], Awaitable[None]]) -> None:
    """Call `listing` until it raises no ApiError."""
    failed = 0
    while True:
        try:
            await listing()
            return
        except ApiError as error:
            failed += 1
            delay = _backoff(failed)
            _log.warning("cannot list, will be tried again in %.1f s: %s", delay, error)
            await asyncio.sleep(delay)


def _backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return float(min(_FIRST_BACKOFF * 2 ** min(failures - 1, 10), _LONGEST_BACKOFF))
