"""The cluster's policy at work: read it, weigh all inputs together, and say what became of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from distributed_input.api import names
from distributed_input.api.resource.policy import (
    POLICY_KIND,
    InputPolicy,
    PolicySpec,
    PolicyStatus,
)
from distributed_input.api.resource.problems import problems
from distributed_input_operator import metrics
from distributed_input_operator.budget.ledger import Ask
from distributed_input_operator.budget.policy_report import report
from distributed_input_operator.controller.observe import Sources
from distributed_input_operator.kube.apply import write_status
from distributed_input_operator.kube.store import POLICY_KEY, InputKey, Store
from distributed_input_operator.objects.pod_state import parse_pod
from distributed_input_operator.reconcile import claims

REPORT_SECONDS = 30.0
"""What is used changes all the time: it is written so often."""
_PAUSE_SECONDS = 0.2
"""Changes of so long are weighed together."""
_SHARE = 5
"""Weighing takes at most so small a part of the time."""


def enter_all(sources: Sources) -> None:
    """At the start everyone keeps what it has, until it was looked at; and the policy holds.

    What is left of inputs that are gone counts in all budgets of their namespace, for which labels
    they had is not known any more: that is not for long, and no budget is exceeded.
    """
    _use(sources)
    for key in sources.store.known():
        found = sources.store.input(key)
        labels = None if found is None else found["metadata"].get("labels") or {}
        if ask := _held(sources.store, key, labels):
            sources.ledger.ask(ask)


def left(store: Store, key: InputKey) -> Ask | None:
    """What there is still of an input that is gone."""
    return _held(store, key, None)


def _held(store: Store, key: InputKey, labels: Mapping[str, str] | None) -> Ask | None:
    children = store.children(key)
    live = children.get(("Deployment", names.worker(key[1])), {})
    pods = claims.workers(parse_pod(obj) for (kind, _), obj in children.items() if kind == "Pod")
    return claims.held(live, pods, key, labels)


async def weigh_forever(sources: Sources, changed: Callable[[InputKey], None]) -> None:
    """Settle the ledger whenever something in it has changed."""
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        if not sources.ledger.unsettled:
            continue
        start = time.monotonic()
        for key in sources.ledger.settle():
            changed(key)
        changed(POLICY_KEY)
        await asyncio.sleep(_SHARE * (time.monotonic() - start))


async def look(sources: Sources) -> float | None:
    """Put the policy in force, and write what its budgets have given.

    Returns: seconds after which to look again, or None where there is no policy.
    Raises: ApiError, to be tried again.
    """
    found = sources.store.policy()
    message = _use(sources)
    used = sources.ledger.budgets()
    metrics.show_budgets((one.budget, one.used) for one in used)
    if found is None:
        return None
    before = PolicyStatus.model_validate(found.get("status") or {})
    generation = found["metadata"]["generation"]
    status, again = report(before, generation, message, used, time.time(), REPORT_SECONDS)
    if status is not None:
        name = found["metadata"]["name"]
        await write_status(sources.api, sources.store, "", name, status, POLICY_KIND)
    return again


def _use(sources: Sources) -> str:
    """Put the policy in force; why it cannot be, and then the last one stays."""
    found = sources.store.policy()
    if found is None:
        sources.ledger.use(PolicySpec())
        return ""
    try:
        spec = InputPolicy.model_validate({**found, "status": {}}, extra="ignore").spec
    except ValidationError as error:
        return "; ".join(map(str, problems(error)))
    sources.ledger.use(spec)
    return ""
