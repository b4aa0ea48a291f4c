"""The cluster's policy: put it into force, divide the budgets, and report their usage."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pydantic import ValidationError

from distributed_input.api import names
from distributed_input.api.resource.policy import POLICY_KIND, InputPolicy, PolicySpec
from distributed_input.api.resource.problems import problems
from distributed_input.api.resource.status import PolicyStatus
from distributed_input_operator.budget.claim import InputKey, WorkerRequest
from distributed_input_operator.controller import input_metrics
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.work_queue import in_slices
from distributed_input_operator.kube.apply import write_status
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import REPLICA_SET
from distributed_input_operator.kube.store import POLICY_KEY
from distributed_input_operator.objects.snapshot import Key, Pod, parse_pod
from distributed_input_operator.reconcile import claims
from distributed_input_operator.reconcile.policy_status import policy_status

_log = logging.getLogger(__name__)
NamespaceLabels = Mapping[str, Mapping[str, str] | None]

REPORT_SECONDS = 30.0
"""Minimum seconds between two writes of usage, which changes all the time."""
SETTLE_SECONDS = 5.0
"""Time without ReplicaSets and running pods after which no pod of a deleted input is created."""
MAX_SETTLE_SECONDS = 600.0
"""Time after which a deleted input counts with its existing pods alone, whatever remains of it."""
START_SECONDS = 60.0
"""Maximum time for which a new leader waits for pods of numbers that it does not know. The
ReplicaSet controller creates 20 pods per second, and may be busy with any input."""
_CHECK_SECONDS = 1.0
_PAUSE_SECONDS = 0.2
"""Changes within this time lead to one reallocation."""
_SHARE = 5
"""Reallocation uses at most one part in this many of the time."""


async def restore(context: ControllerContext) -> None:
    """Enter all inputs and the policy into the ledger of a new leader.

    Every input keeps what it has until it is reconciled. What remains of deleted inputs counts in
    all budgets of their namespace, because their labels are not known any more. That does not last
    long, and no budget is exceeded.
    """
    await _set_policy(context)
    known = context.store.known()
    of = await _namespace_labels(context, context.ledger.policy, known)
    async for key in in_slices(known):
        _enter(context, key, of)


def _enter(context: ControllerContext, key: InputKey, of: NamespaceLabels) -> None:
    if not context.store.is_foreign(key) and (request := _known_request(context, key, of)):
        context.ledger.complete(request)


def _known_request(
    context: ControllerContext, key: InputKey, of: NamespaceLabels
) -> WorkerRequest | None:
    stored = context.store.input(key)
    labels = None if stored is None else stored["metadata"].get("labels") or {}
    return _existing_request(context, key, labels, of.get(key[0]))


async def keep(context: ControllerContext, key: InputKey) -> None:
    """Enter what an input has whose spec cannot be used. It keeps that."""
    of = await _namespace_labels(context, context.ledger.policy, [key])
    if context.store.input(key) is None:
        return  # Its deletion is an event.
    if (request := _known_request(context, key, of)) is None:
        context.ledger.remove(key)
    else:
        context.ledger.request(request)


async def _namespace_labels(
    context: ControllerContext, policy: PolicySpec, keys: Iterable[InputKey]
) -> NamespaceLabels:
    """Return the labels of the namespaces of these inputs, if the policy selects by them."""
    if not policy.selects_namespaces:
        return {}
    found = sorted({namespace for namespace, _ in keys})
    labels = await asyncio.gather(*map(context.namespaces.labels, found))
    return dict(zip(found, labels, strict=True))


async def release(context: ControllerContext, key: InputKey, now: float) -> float | None:
    """Give back what a deleted input does not use any more.

    Its ReplicaSet outlives its Deployment, and may create pods until it is deleted too. The
    ReplicaSet controller then still creates what it has begun.

    Returns:
        Seconds until the next call. None: events lead to it.

    Raises:
        ApiError: a retry may succeed.
    """
    if ("Deployment", names.worker(key[1])) in context.store.children(key):
        # It counts with all its replicas.
        context.ledger.release(key, _existing_request(context, key, None))
        return None
    wait = await _settling_seconds(context, key, now) if context.ledger.may_create(key) else 0.0
    remaining = _existing_request(context, key, None)
    if remaining is not None:
        remaining = replace(remaining, scaling=bool(wait))
    context.ledger.release(key, remaining, settled=not wait)
    if remaining is None and not wait:
        context.settling.pop(key, None)
    return wait or None


async def _settling_seconds(context: ControllerContext, key: InputKey, now: float) -> float:
    """Return after what time to check again whether pods may be created. 0: they cannot."""
    first, quiet_since = context.settling.get(key, (now, now))
    if now - first >= MAX_SETTLE_SECONDS:
        _log.warning(
            "%s/%s: its pods, or a ReplicaSet that creates some, remain %.0f s after its deletion. "
            "Budgets count only its existing pods from now on",
            *key,
            now - first,
        )
        return 0.0
    pods = claims.worker_pods(_pods(context, context.store.children(key)))
    running = any(not one.terminating for one in pods)
    if running or await _has_replica_set(context, key):
        quiet_since = now
    context.settling[key] = first, quiet_since
    quiet = now - quiet_since
    return min(_CHECK_SECONDS, max(0.0, SETTLE_SECONDS - quiet))


async def _has_replica_set(context: ControllerContext, key: InputKey) -> bool:
    """Return whether a ReplicaSet of the input's worker Deployment creates pods."""
    selector = f"{names.INPUT_LABEL}={key[1]},{names.COMPONENT_LABEL}={names.WORKER}"
    owner = "Deployment", names.worker(key[1])
    async for one in context.api.objects(REPLICA_SET, key[0], selector):
        owners = one["metadata"].get("ownerReferences") or ()
        of_worker = owner in ((each["kind"], each["name"]) for each in owners)
        if of_worker and one["spec"].get("replicas", 1):
            return True
    return False


def _existing_request(
    context: ControllerContext,
    key: InputKey,
    labels: Mapping[str, str] | None,
    of: Mapping[str, str] | None = None,
) -> WorkerRequest | None:
    children = context.store.children(key)
    workers = children.get(("Deployment", names.worker(key[1])), {})
    dispatcher = children.get(("Deployment", names.dispatcher(key[1])), {})
    others = context.ledger.policy.resource_names
    pods = _pods(context, children)
    return claims.existing_request(workers, pods, key, labels, dispatcher, others, of)


def _pods(context: ControllerContext, children: Mapping[Key, Json]) -> list[Pod]:
    others = context.ledger.policy.resource_names
    return [parse_pod(obj, others) for (kind, _), obj in children.items() if kind == "Pod"]


async def reallocate_forever(
    context: ControllerContext, changed: Callable[[InputKey], None]
) -> None:
    """Reallocate whenever the ledger is outdated. Call `changed` with each affected input."""
    rules, began = _input_rules(context), time.monotonic()
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        if time.monotonic() - began > START_SECONDS:
            context.ledger.settle()
        if not context.ledger.outdated:
            continue
        start = time.monotonic()
        affected = context.ledger.reallocate()
        if _input_rules(context) != rules:
            rules, affected = _input_rules(context), list(context.store.known())
        for key in affected:
            changed(key)
        changed(POLICY_KEY)
        await asyncio.sleep(_SHARE * (time.monotonic() - start))


def _input_rules(context: ControllerContext) -> tuple[object, ...]:
    """Return the parts of the policy that every reconciliation of an input reads."""
    policy = context.ledger.policy
    selects = policy.selects_namespaces
    return policy.modules, policy.priority_classes, selects, policy.resource_names


async def reconcile_policy(context: ControllerContext) -> float | None:
    """Put the policy into force, and report the usage of its budgets.

    Returns:
        Seconds until the next reconciliation. None: there is no policy.

    Raises:
        ApiError: a retry may succeed.
    """
    stored = context.store.policy()
    message = await _set_policy(context)
    usage = context.ledger.usage()
    others = context.ledger.policy.resource_names
    input_metrics.set_budgets(usage, others)
    if stored is None:
        return None
    before = PolicyStatus.model_validate(stored.get("status") or {})
    generation = stored["metadata"]["generation"]
    status, interval = policy_status(
        before, generation, message, usage, time.time(), REPORT_SECONDS, others
    )
    if status is not None:
        name = stored["metadata"]["name"]
        uid = stored["metadata"]["uid"]
        await write_status(context.api, context.store, "", name, status, POLICY_KIND, uid=uid)
    return interval


async def _set_policy(context: ControllerContext) -> str:
    """Put the policy into force. If it is invalid, keep the last one and return the reason.

    Without a last one, no input gets more than it has: an unreadable limit is not "no limit".
    """
    stored, before = context.store.policy(), context.ledger.policy
    spec, message = before, ""
    try:
        spec = InputPolicy.from_stored(stored).spec if stored else PolicySpec()
    except ValidationError as error:
        if before == PolicySpec():
            context.ledger.hold()
        message = "; ".join(map(str, problems(error, InputPolicy)))
    # What inputs have of new resources was not counted, and the labels were not read.
    enter = spec.resource_names != before.resource_names
    enter |= spec.selects_namespaces and not before.selects_namespaces
    known = context.store.known() if enter else []
    of = await _namespace_labels(context, spec, known)
    if not message:
        context.ledger.set_policy(spec)
    for key in known:
        _enter(context, key, of)
    return message
