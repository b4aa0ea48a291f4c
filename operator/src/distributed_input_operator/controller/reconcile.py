"""One look at one input: observe, plan, apply, report. The same however often it is done."""

from __future__ import annotations

import time

from distributed_input_operator import metrics
from distributed_input_operator.controller import budgets
from distributed_input_operator.controller.observe import Sources, Unusable, observe
from distributed_input_operator.kube import events
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.apply import apply, failure, write_status
from distributed_input_operator.kube.owner import OwnerGone, correct
from distributed_input_operator.kube.store import POLICY_KEY, InputKey
from distributed_input_operator.reconcile.plan import QUIET_SECONDS, plan, refusal, report


async def reconcile(sources: Sources, key: InputKey) -> float | None:
    """Bring the cluster closer to what the input wants.

    Returns: seconds after which to look again, or None where the input is gone.
    Raises: ApiError, to be tried again.
    """
    if key == POLICY_KEY:
        return await budgets.look(sources)
    try:
        return await _reconcile(sources, key, time.time())
    except OwnerGone as gone:
        correct(sources.store, key, gone)
        return 0.0


async def _reconcile(sources: Sources, key: InputKey, now: float) -> float | None:
    try:
        snapshot = await observe(sources, key)
    except Unusable as error:
        return await _refuse(sources, key, str(error), now)
    if snapshot is None:
        sources.tokens.forget(key)
        sources.dispatchers.forget(key)
        metrics.forget(key)
        sources.scaled.pop(key, None)
        sources.ledger.leaving(key, budgets.left(sources.store, key))
        return None
    made = plan(snapshot, now, sources.ledger.ask)
    if made.decision:
        sources.scaled[key] = (snapshot.resource.metadata.uid or "", made.decision.state)
    else:
        sources.scaled.pop(key, None)
    awaited = [one for one in snapshot.missing if one.passing]
    # Without its own token there, an input's pods would start with what is about to go.
    failed = [] if awaited else await apply(sources.api, sources.store, snapshot, made)
    status = report(snapshot, made, map(failure, failed), now)
    if status is not None:
        await write_status(sources.api, sources.store, *key, status)
        await events.tell(sources.api, snapshot, status, now)
    if awaited:
        raise ApiError(0, awaited[0].reason, awaited[0].message)
    metrics.show(key, snapshot, made)
    for one in failed:
        if one.retryable:
            raise one
    return made.again


async def _refuse(sources: Sources, key: InputKey, why: str, now: float) -> float:
    found = sources.store.input(key) or {}
    status = refusal(found.get("status") or {}, found["metadata"]["generation"], why, now)
    if status is not None:
        await write_status(sources.api, sources.store, *key, status)
    return QUIET_SECONDS
