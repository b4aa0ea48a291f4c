"""One reconciliation of one input: observe, plan, apply, report. Repeating it changes nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from distributed_input.api import names
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller import budgets, input_metrics
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.observe import (
    InvalidSpec,
    observe,
    observe_invalid,
    with_children,
)
from distributed_input_operator.kube import events
from distributed_input_operator.kube.api import ApiError
from distributed_input_operator.kube.apply import apply, apply_one, failure, write_status
from distributed_input_operator.kube.owner import OwnerGone, confirm, correct
from distributed_input_operator.kube.store import POLICY_KEY
from distributed_input_operator.objects.shared import certificate_objects
from distributed_input_operator.objects.snapshot import Failure, Snapshot
from distributed_input_operator.reconcile.pace import RolloutState
from distributed_input_operator.reconcile.plan import (
    QUIET_SECONDS,
    Demand,
    Plan,
    is_up_to_date,
    make_plan,
    plan_demand,
)
from distributed_input_operator.reconcile.status import input_status, invalid_status
from distributed_input_operator.reconcile.template_changes import is_missing_template

_log = logging.getLogger(__name__)


async def reconcile(context: ControllerContext, key: InputKey) -> float | None:
    """Bring the cluster closer to an input's spec, or apply the cluster's policy.

    Returns:
        Seconds until the next reconciliation. None: the input is deleted, or another operator
        manages it.

    Raises:
        ApiError: a retry may succeed.
    """
    if key == POLICY_KEY:
        return await budgets.reconcile_policy(context)
    if context.store.is_foreign(key):
        # An input of the same name may have been this operator's. Its deletion may not be seen
        # before the new one. What remains of it belongs to the other operator now.
        _forget(context, key)
        context.ledger.remove(key)
        return None
    now = time.time()
    try:
        try:
            snapshot = await observe(context, key)
        except InvalidSpec as error:
            context.rollouts.forget(key)
            return await _reconcile_invalid(context, key, str(error), now)
        if snapshot is not None:
            context.settling.pop(key, None)
            return await _reconcile(context, key, snapshot, now)
    except OwnerGone as gone:
        correct(context.store, key, gone)
        return 0.0
    _forget(context, key)
    return await budgets.release(context, key, now)


def _forget(context: ControllerContext, key: InputKey) -> None:
    """Drop all state of an input, except its claim."""
    context.forget(key)
    input_metrics.remove_input(key)


async def _reconcile(
    context: ControllerContext, key: InputKey, snapshot: Snapshot, now: float
) -> float:
    demand = plan_demand(snapshot, now)
    grant = context.ledger.request(demand.request)
    failed_before = context.rollouts.state(key) is RolloutState.FAILING
    healthy = all(one.healthy for one in demand.changes)
    turn = context.rollouts.request(key, demand.rollout, healthy=healthy)
    plan = make_plan(snapshot, demand, grant, turn)
    state = plan.decision.state if plan.decision else None
    context.set_autoscaling_state(key, snapshot.resource.metadata.uid or "", state)
    snapshot = await _create_secret(context, snapshot)
    blocking = [one for one in snapshot.missing if one.passing]
    # Without the input's own token, its pods would start with a token that is about to be deleted.
    failed = [] if blocking else await apply(context.api, context.store, snapshot, plan)
    # Only the applied objects show whether the status of a Deployment is about an earlier spec.
    after = with_children(context.store, key, snapshot) if plan.objects else snapshot
    failures = [failure(one) for one in failed]
    refusal = "" if blocking else _record_write(context, key, after, plan, demand, failures)
    if context.rollouts.state(key) is RolloutState.FAILING and not failed_before:
        cause = refusal or next(one.failing for one in demand.changes if one.failing)
        _log.warning("%s/%s: the operator's new pods fail: %s", *key, cause)
        await events.report_failing_rollout(context.api, snapshot, cause, now)
    status = input_status(after, plan, failures, now)
    if status is not None:
        uid = snapshot.resource.metadata.uid or ""
        if not await write_status(context.api, context.store, *key, status, uid=uid):
            # A new input, which is not read before its children are created, is deleted too.
            raise OwnerGone(uid, None)
        found = [*snapshot.missing, *failures, *plan.waiting]
        await events.report(context.api, snapshot, status, found, now)
    if blocking:
        raise ApiError(0, blocking[0].reason, blocking[0].message)
    input_metrics.set_input(key, snapshot, plan)
    context.looks.record(key, snapshot)
    for one in failed:
        if one.retryable:
            raise one
    return plan.interval


async def _create_secret(context: ControllerContext, snapshot: Snapshot) -> Snapshot:
    """Create the input's Secret, if it is due. Return the snapshot, with the error if there is one.

    Raises OwnerGone if the input is deleted.
    """
    if snapshot.secret is None:
        return snapshot
    try:
        await context.tokens.create(snapshot.resource, snapshot.secret, young=snapshot.young)
    except ApiError as error:
        # For example a quota. The Secret may exist, so the others are applied.
        return replace(snapshot, missing=(*snapshot.missing, failure(error)))
    return snapshot


def _record_write(
    context: ControllerContext,
    key: InputKey,
    after: Snapshot,
    plan: Plan,
    demand: Demand,
    failures: Sequence[Failure],
) -> str:
    """Record whether the operator's template was accepted. Return why it is refused, or ""."""
    final = next((one.message for one in failures if one.final), "")
    missing = is_missing_template(after, plan.objects, demand.changes)
    if missing and not final:
        return ""  # The request is retried.
    context.rollouts.record_write(key, refused=missing)
    return final if missing else ""


async def _reconcile_invalid(
    context: ControllerContext, key: InputKey, message: str, now: float
) -> float | None:
    """Keep an input running whose spec cannot be used, and report that.

    Returns:
        Seconds to wait, or None if the input is gone: its deletion is an event.

    Raises:
        ApiError: a retry may succeed.
    """
    failed, wait = None, QUIET_SECONDS
    # Workers refuse all connections after their certificates expire: renew them first.
    try:
        wait = await _renew_certificates(context, key)
    except ApiError as error:
        failed = error
    await budgets.keep(context, key)
    await _report_invalid(context, key, message, now)
    if failed is not None:
        raise failed
    return wait if context.store.input(key) else None


async def _renew_certificates(context: ControllerContext, key: InputKey) -> float:
    """Renew the certificates of an input whose spec cannot be used. Return seconds to wait."""
    snapshot = await observe_invalid(context, key)
    if snapshot is None:
        return QUIET_SECONDS
    await _create_secret(context, snapshot)
    for one in certificate_objects(snapshot.resource, snapshot.certificates):
        if not is_up_to_date(snapshot, one):
            await confirm(context.api, snapshot.resource)
            await apply_one(context.api, context.store, snapshot, one)
    return min(QUIET_SECONDS, snapshot.renew_seconds)


async def _report_invalid(
    context: ControllerContext, key: InputKey, message: str, now: float
) -> None:
    stored = context.store.input(key)
    if stored is None:
        return  # Its deletion is an event.
    generation = stored["metadata"]["generation"]
    workers = context.store.children(key).get(("Deployment", names.worker(key[1])), {})
    before = stored.get("status") or {}
    status = invalid_status(before, generation, message, workers, now)
    if status is not None:
        uid = stored["metadata"]["uid"]
        await write_status(context.api, context.store, *key, status, uid=uid)
        await events.report_invalid(context.api, stored["metadata"], message, now)
