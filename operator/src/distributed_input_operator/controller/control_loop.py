"""The control loop: events in, reconciliations of inputs out."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Sequence
from functools import partial

from distributed_input_operator import metrics
from distributed_input_operator.budget.claim import InputKey, namespace_of
from distributed_input_operator.controller import budgets, input_metrics
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.reconcile_input import reconcile
from distributed_input_operator.controller.startup.first_changes import FirstChanges
from distributed_input_operator.controller.startup.lanes import EarlierChanges
from distributed_input_operator.controller.work_queue import Lane, WorkQueue, in_slices
from distributed_input_operator.kube.api import ApiError, backoff
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import INPUT, POLICY
from distributed_input_operator.kube.reflector import Mirror, reflect
from distributed_input_operator.kube.store import POLICY_KEY
from distributed_input_operator.kube.watch import watch
from distributed_input_operator.objects.kind import Kind

_log = logging.getLogger(__name__)

WORKERS = 128
"""Concurrent reconciliations, of which one namespace has at most half. Most of their time is
waiting, up to 2 s for a silent dispatcher."""
RECONCILE_TIMEOUT_SECONDS = 60.0
"""A reconciliation of one input that needs more time hangs."""
GATHER_SECONDS = 0.5
"""Events about an input's children within this time lead to one reconciliation. While pods start,
they come by the dozen."""
_STOP_SECONDS = 5.0
_MAX_BACKOFF_SECONDS = 60.0


class ControlLoop:
    """Reconciles all inputs of some namespaces, or of all."""

    def __init__(
        self,
        context: ControllerContext,
        kinds: Sequence[Kind],
        namespaces: Sequence[str],
        may_write: Callable[[], bool],
    ) -> None:
        """Create a control loop.

        Args:
            context: what all reconciliations share.
            kinds: the kinds to watch.
            namespaces: the namespaces to serve. Empty: all.
            may_write: called before each reconciliation. If it returns False, the process exits.
        """
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
        self._mirrors = [
            Mirror(context.store, kind, namespace, self._on_change)
            for kind in self._kinds
            for namespace in ((None,) if kind.cluster_scoped else self._namespaces or (None,))
        ]

    async def run(self) -> None:
        """Run until SIGTERM, which kopf handles, or until cancelled. Raise any task's error."""
        own = [one for one in self._mirrors if one.kind in (INPUT, POLICY)]
        watching = watch(self._context.api, own, self._namespaces)
        tasks = [asyncio.create_task(one) for one in (watching, self._run(own))]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_STOP_SECONDS)
        for task in ended:
            task.result()

    async def _run(self, own: Sequence[Mirror]) -> None:
        """Wait until the custom kinds are listed, then list and watch all others, and work."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(self._work))
            for mirror in own:
                await mirror.listed.wait()
            self._start_first_changes()
            first = group.create_task(self._first.run()) if self._first else None
            children = [one for one in self._mirrors if one not in own]
            for mirror in children:
                group.create_task(reflect(self._context.api, mirror))
            for mirror in children:
                await mirror.listed.wait()
            if first:
                first.cancel()
            self._first = None
            await self._queue_all()
            group.create_task(self._context.looks.run(self._queue.add))
            group.create_task(budgets.reallocate_forever(self._context, self._queue.add))

    def _start_first_changes(self) -> None:
        """Apply changes of inputs while children are listed, unless they may have budgets.

        Budgets need to know what all inputs have.
        """
        store = self._context.store
        self._context.rollouts.expect(store.known())
        for key in store.known():
            if (stored := store.input(key)) and not store.is_foreign(key):
                self._earlier.record(key, stored)
        if store.policy() is None:
            ready = partial(self._queue.add, lane=Lane.CHANGE)
            self._first = FirstChanges(self._context.api, self._kinds, store.put, ready)

    async def _queue_all(self) -> None:
        """Queue all inputs: what the store lacks of them does not exist."""
        await budgets.restore(self._context)
        self._all_listed = True
        store = self._context.store
        self._context.rollouts.expect(store.known())
        deleted, self._deleted = self._deleted, set()
        async for key in in_slices((POLICY_KEY, *store.known(), *deleted)):
            stored = store.input(key)
            if stored and (stored.get("status") or {}).get("trainers"):
                self._context.looks.expect(key)
            self._queue.add(key, self._earlier.lane(key, stored, Lane.START))

    def _on_change(self, key: InputKey, kind: Kind, obj: Json | None) -> None:
        if not self._all_listed:
            # All other inputs are queued when their children are known.
            if obj is None:
                # Without children it is never queued, and no rollout would ever start.
                self._context.rollouts.forget(key)
                self._deleted.add(key)
            elif self._first and self._is_change(key, kind, obj):
                self._first.add(key)
        elif kind in (INPUT, POLICY):
            self._queue.add(key, self._earlier.lane(key, obj, Lane.EVENT))
        else:
            self._queue.add_after(key, GATHER_SECONDS)

    def _is_change(self, key: InputKey, kind: Kind, obj: Json) -> bool:
        """Return whether a user has changed an input since this operator leads."""
        own = kind is INPUT and not self._context.store.is_foreign(key)
        return own and self._earlier.lane(key, obj, Lane.EVENT) is Lane.CHANGE

    async def _work(self, key: InputKey) -> None:
        if not self._may_write():
            _log.critical("the lease was not renewed in time: another replica may lead")
            os._exit(1)
        succeeded = False
        try:
            succeeded = await self._reconcile(key)
        finally:
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
        delay = backoff(count, _MAX_BACKOFF_SECONDS)
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
