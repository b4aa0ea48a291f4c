"""The control loop: events in, reconciliations of inputs out."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from distributed_input.api.resource.input import KIND
from distributed_input.api.resource.policy import POLICY_KIND
from distributed_input_operator import metrics
from distributed_input_operator.budget.claim import InputKey, namespace_of
from distributed_input_operator.controller import budgets, input_metrics
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.reconcile_input import reconcile
from distributed_input_operator.controller.resync import Resync
from distributed_input_operator.controller.startup.first_changes import (
    FirstChanges,
    FirstWatches,
    version_now,
)
from distributed_input_operator.controller.startup.lanes import EarlierChanges
from distributed_input_operator.controller.startup.slices import in_slices
from distributed_input_operator.controller.work_queue import Lane, WorkQueue
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.kinds import INPUT, POLICY, Kind
from distributed_input_operator.kube.store import POLICY_KEY, Json
from distributed_input_operator.kube.watch import watch

_log = logging.getLogger(__name__)

WORKERS = 128
"""Concurrent reconciliations, of which one namespace has at most half. Most of their time is
waiting, up to 2 s for a silent dispatcher."""
RECONCILE_TIMEOUT_SECONDS = 60.0
"""A reconciliation of one input that needs more time hangs."""
RESYNC_SECONDS = 120.0
_RESYNC_SHARE = 20
"""Minimum interval of the resync, as a multiple of the time that listing needs."""
GATHER_SECONDS = 0.5
"""Events about an input's children within this time lead to one reconciliation. While pods start,
they come by the dozen."""
_STOP_SECONDS = 5.0
_MIN_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 0.5, 60.0


class ControlLoop:
    """Reconciles all inputs of some namespaces, or of all."""

    def __init__(
        self,
        context: ControllerContext,
        kinds: Sequence[Kind],
        namespaces: Sequence[str],
        may_write: Callable[[], bool],
        resync_seconds: float = RESYNC_SECONDS,
    ) -> None:
        """Create a control loop.

        Args:
            context: what all reconciliations share.
            kinds: the kinds to watch.
            namespaces: the namespaces to serve. Empty: all.
            may_write: called before each reconciliation. If it returns False, the process exits.
            resync_seconds: interval between two resyncs.
        """
        self._resync_seconds = resync_seconds
        self._context = context
        self._kinds = tuple(kinds)
        self._namespaces = tuple(namespaces)
        self._may_write = may_write
        self._queue: WorkQueue[InputKey] = WorkQueue(namespace_of, WORKERS)
        self._failures: dict[InputKey, int] = {}
        self._first: FirstChanges | None = None
        """Changes while the children are listed. None: there are budgets."""
        self._earlier = EarlierChanges()
        self._all_listed = False
        self._deleted: set[InputKey] = set()
        """Inputs with deletions before all children are known. They may have claims already."""
        self._listed: asyncio.Queue[tuple[Kind, str | None]] = asyncio.Queue()
        self._resync = Resync(
            context.api, context.store, kinds, self._namespaces or (None,), self._queue.add
        )

    @property
    def dead_watches(self) -> tuple[str, ...]:
        """Kinds whose watch delivers no events."""
        return self._resync.dead

    async def run(self) -> None:
        """Run until SIGTERM, which kopf handles, or until cancelled. Raise any task's error."""
        versions: dict[str | None, str] = {}
        await _until_listed(partial(self._list_inputs, versions))
        tasks = [asyncio.create_task(self._work_forever()) for _ in range(WORKERS)]
        self._start_first_changes()
        changes = [asyncio.create_task(self._first.run())] if self._first else []
        known = self._context.store.known()
        first = FirstWatches(self._context.api, versions, known, self._on_event)
        try:
            await self._list_children()
            for task in changes:
                task.cancel()
            self._first = None
            tasks += [asyncio.create_task(one) for one in self._background(first)]
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending = (*tasks, *changes, *first.tasks)
            for task in ending:
                task.cancel()
            await asyncio.wait(ending, timeout=_STOP_SECONDS)
        for task in ended:
            task.result()

    def _background(self, first: FirstWatches) -> tuple[Coroutine[Any, Any, None], ...]:
        def on_event(change: str | None, obj: Json) -> None:
            first.record(obj)
            self._on_event(change, obj)

        def on_list(kind: Kind, namespace: str | None) -> None:
            first.listed(kind)
            self._listed.put_nowait((kind, namespace))

        return (
            self._context.looks.run(self._queue.add),
            budgets.reallocate_forever(self._context, self._queue.add),
            self._resync_forever(),
            self._drop_missing_forever(),
            # The last one: at the end, kopf waits 5 s for the tasks that began after it.
            watch(self._kinds, self._namespaces, on_event, on_list),
        )

    async def _list_inputs(self, versions: dict[str | None, str]) -> None:
        """Fill the store with the inputs and the policy. `versions` gets where a watch begins.

        If the list is repeated, the watch begins before the first attempt: it reports the deletion
        of an input that only that attempt has listed.
        """
        for namespace in self._namespaces or (None,):
            if namespace not in versions:
                versions[namespace] = await version_now(self._context.api, namespace)
        await self._list((INPUT, POLICY))

    def _start_first_changes(self) -> None:
        """Apply changed inputs while children are listed, unless they may have budgets.

        Budgets need to know what all inputs have.
        """
        store = self._context.store
        self._context.rollouts.expect(store.known())
        for key in store.known():
            if (stored := store.input(key)) and not store.is_foreign(key):
                self._earlier.record(key, stored)
        if store.policy() is not None:
            return
        self._first = FirstChanges(
            self._context.api, self._kinds, self._context.store.put, self._queue.add
        )
        for key in self._earlier:
            self._first.add(key, Lane.EARLIER_CHANGE)

    async def _list_children(self) -> None:
        """Fill the store before the other inputs are reconciled, which creates what it lacks.

        The watches list again: `_drop_missing_forever` drops what was deleted in between.
        """
        children = tuple(kind for kind in self._kinds if kind not in (INPUT, POLICY))
        await _until_listed(partial(self._list, children))
        await budgets.restore(self._context)
        self._all_listed = True
        store = self._context.store
        self._context.rollouts.expect(store.known())
        deleted, self._deleted = self._deleted, set()
        async for key in in_slices((POLICY_KEY, *store.known(), *deleted)):
            stored = store.input(key)
            if stored and (stored.get("status") or {}).get("live"):
                self._context.looks.expect(key)
            self._queue.add(key, self._earlier.lane(key, stored, Lane.START))

    async def _list(self, kinds: Sequence[Kind]) -> None:
        for kind in kinds:
            if kind not in self._kinds:
                continue
            everywhere = kind.cluster_scoped or not self._namespaces
            for namespace in (None,) if everywhere else self._namespaces:
                async for obj in self._context.api.objects(kind, namespace):
                    self._context.store.put(obj)

    def _on_event(self, kind: str | None, obj: Json) -> None:
        self._resync.record_event(obj)
        if kind == "DELETED":
            key = self._context.store.drop(obj)
        else:
            key = self._context.store.put(obj)
        if key is None:  # Usually the event of the operator's own write.
            return
        if not self._all_listed:
            # All other inputs are queued when their children are known.
            if kind == "DELETED":
                # Without children it is never queued, and no rollout would ever start.
                self._context.rollouts.forget(key)
                self._deleted.add(key)
            elif self._first and obj["kind"] == KIND and not self._context.store.is_foreign(key):
                self._first.add(key, self._earlier.lane(key, obj, Lane.EVENT))
        elif obj["kind"] in (KIND, POLICY_KIND):
            now = None if kind == "DELETED" else obj
            self._queue.add(key, self._earlier.lane(key, now, Lane.EVENT))
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
                _log.warning("resync failed, will retry: %s", error)
            if self._resync.dead:
                _log.error("no events of %s arrive: restarting", ", ".join(self._resync.dead))

    async def _work_forever(self) -> None:
        while True:
            key = await self._queue.get()
            if not self._may_write():
                _log.critical("the lease was not renewed in time: another replica may lead")
                os._exit(1)
            succeeded = False
            try:
                succeeded = await self._reconcile(key)
            finally:
                self._queue.done(key)
                self._start_rollouts(key, failed=not succeeded)

    def _start_rollouts(self, key: InputKey, *, failed: bool) -> None:
        """Reconcile the inputs that may get the operator's template after this reconciliation."""
        rollouts = self._context.rollouts
        # A failed input is retried after its delay, and not as one of the next ones.
        rollouts.end(key, failed=failed)
        for one in rollouts.next():
            self._queue.add(one)
        input_metrics.set_rollouts(rollouts.counts)

    async def _reconcile(self, key: InputKey) -> bool:
        """Reconcile an input, and set the time of its next reconciliation. Return the success."""
        try:
            # Not wait_for: in Python 3.11 it may swallow the cancellation at the end.
            with metrics.SECONDS.time():
                async with asyncio.timeout(RECONCILE_TIMEOUT_SECONDS):
                    interval = await reconcile(self._context, key)
        except Exception as error:  # noqa: BLE001 - a failure of one input must not stop others
            self._on_failure(key, error)
            return False
        metrics.RECONCILES.labels("ok").inc()
        self._failures.pop(key, None)
        if interval is None:
            self._queue.forget(key)
        else:
            self._queue.add_after(key, interval * random.uniform(0.9, 1.1))
        return True

    def _on_failure(self, key: InputKey, error: Exception) -> None:
        metrics.RECONCILES.labels("failed").inc()
        count = self._failures[key] = self._failures.get(key, 0) + 1
        delay = _backoff(count)
        expected = isinstance(error, ApiError | TimeoutError)
        _log.warning(
            "%s/%s: failed, will retry in %.1f s: %s",
            *key,
            delay,
            str(error) or type(error).__name__,
            exc_info=None if expected else error,
        )
        lane = self._earlier.lane(key, self._context.store.input(key), Lane.EVENT)
        self._queue.add_after(key, delay * random.uniform(0.5, 1.0), lane)


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
            _log.warning("cannot list, will retry in %.1f s: %s", delay, error)
            await asyncio.sleep(delay)


def _backoff(failures: int) -> float:
    """Return the seconds to wait after a number of consecutive failures."""
    return float(min(_MIN_BACKOFF_SECONDS * 2 ** min(failures - 1, 10), _MAX_BACKOFF_SECONDS))
