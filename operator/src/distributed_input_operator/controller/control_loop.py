"""The control loop: events in, reconciliations of inputs out."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable, Iterable, Sequence

from distributed_input.api import names
from distributed_input_operator import metrics
from distributed_input_operator.budget.claim import InputKey, namespace_of
from distributed_input_operator.controller import budgets, input_metrics
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.reconcile_input import reconcile
from distributed_input_operator.controller.work_queue import Lane, WorkQueue, in_slices
from distributed_input_operator.kube.api import ApiError, backoff
from distributed_input_operator.kube.json_text import Json, shared
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


class EarlierChanges:
    """The changed inputs that a new leader found, with the version of their spec.

    Thousands of inputs may have changed while no operator ran, for example because they are new. A
    change that a user makes now goes before all of them.
    """

    def __init__(self, found: Iterable[tuple[InputKey, Json]] = ()) -> None:
        self._specs = {key: _spec_version(one) for key, one in found if is_changed(one)}

    def lane(self, key: InputKey, stored: Json | None, unchanged: Lane) -> Lane:
        """Return the lane of an input.

        Args:
            key: the input.
            stored: the input as it is now. None: it is deleted.
            unchanged: its lane if its spec is applied.
        """
        if stored is None or not is_changed(stored):
            self._specs.pop(key, None)
            return unchanged
        known = self._specs.get(key) == _spec_version(stored)
        return Lane.EARLIER_CHANGE if known else Lane.CHANGE


def is_changed(stored: Json) -> bool:
    """Return whether the operator has not yet applied the spec of an input."""
    observed = (stored.get("status") or {}).get("observedGeneration")
    return bool(observed != stored["metadata"].get("generation"))


def _spec_version(stored: Json) -> tuple[str, int | None]:
    """Return the uid and generation: another input of this name begins with generation 1 again."""
    meta = stored["metadata"]
    return shared(meta.get("uid", "")), meta.get("generation")


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
        self._earlier = EarlierChanges()
        self._lists_alone = False
        """Whether the children of all inputs are being listed, and those of changed ones alone."""
        self._listed_alone: set[InputKey] = set()
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
            self._begin_first_changes()
            children = [one for one in self._mirrors if one not in own]
            for mirror in children:
                group.create_task(reflect(self._context.api, mirror))
            for mirror in children:
                await mirror.listed.wait()
            self._lists_alone = False
            await self._queue_all()
            group.create_task(self._context.looks.run(self._queue.add))
            group.create_task(budgets.reallocate_forever(self._context, self._queue.add))

    def _begin_first_changes(self) -> None:
        """Apply changes of inputs while children are listed, unless they may have budgets.

        Budgets need to know what all inputs have. Inputs that changed before wait for the list of
        all: they may be thousands, and the list of one's children costs as much as a part of it.
        """
        store = self._context.store
        self._context.rollouts.expect(store.known())
        self._earlier = EarlierChanges(
            (key, stored)
            for key in store.known()
            if not store.is_foreign(key) and (stored := store.input(key))
        )
        self._lists_alone = store.policy() is None

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
            elif self._lists_alone and self._is_change(key, kind, obj):
                self._queue.add(key, Lane.CHANGE)
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
                    if self._lists_alone and key not in self._listed_alone:
                        await self._list_children(key)
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

    async def _list_children(self, key: InputKey) -> None:
        """List the children of one input, all kinds together. Raises an ApiError.

        Together, because each list waits until the API server's cache has all earlier writes.
        """

        async def list_kind(kind: Kind) -> None:
            selector = f"{names.INPUT_LABEL}={key[1]}"
            async for obj in self._context.api.objects(kind, key[0], selector):
                self._context.store.put(obj)

        kinds = [kind for kind in self._kinds if kind not in (INPUT, POLICY)]
        for error in await asyncio.gather(*map(list_kind, kinds), return_exceptions=True):
            if error:
                raise error
        self._listed_alone.add(key)

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
