"""The status of the cluster's InputPolicy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed_input.api import timestamps
from distributed_input.api.resource.policy import UNLIMITED
from distributed_input.api.resource.status import PolicyStatus
from distributed_input_operator.budget.claim import BudgetUsage
from distributed_input_operator.reconcile.conditions import (
    INVALID_SPEC,
    READY,
    Finding,
    conditions,
    summarize,
)

IN_EFFECT = "InEffect"
"""Reason of the condition Ready of a policy that can be used."""
_GIB = 1 << 30


def policy_status(
    before: PolicyStatus,
    generation: int,
    message: str,
    usage: Sequence[BudgetUsage],
    now: float,
    interval: float,
    others: Sequence[str] = (),
) -> tuple[dict[str, Any] | None, float]:
    """Compute the status to write and the seconds until the next reconciliation.

    The status is None if the last one is still right or too recent. `message` is why the spec
    cannot be used. `interval` is the minimum of seconds between two writes of numbers that change
    all the time.
    """
    ready = Finding(READY, not message, INVALID_SPEC if message else IN_EFFECT, message)
    found = summarize(ready, stalled=bool(message))
    text = timestamps.to_text(now)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": conditions(found, before.conditions, generation, text),
        "summary": ", ".join(map(_summary, usage)),
        "budgets": [_budget(one, others) for one in usage],
    }
    after = PolicyStatus.model_validate({**status, "observedAt": before.observed_at})
    if after == before:
        return None, 10 * interval
    written = timestamps.to_seconds(before.observed_at)
    if after.conditions == before.conditions and written is not None and now - written < interval:
        return None, interval - (now - written)
    return {**status, "observedAt": text}, interval


def _summary(one: BudgetUsage) -> str:
    limit = one.budget.limits[0]
    most = "" if limit == UNLIMITED else f"/{limit}"
    return f"{one.budget.name} {one.used[0]}{most}"


def _budget(one: BudgetUsage, others: Sequence[str]) -> dict[str, Any]:
    workers, cpu, memory, *more = one.used
    return {
        "name": one.budget.name,
        "inputs": one.inputs,
        "workers": workers,
        "requested": one.requested,
        "resources": {
            "cpu": f"{cpu / 1000:g}",
            "memory": f"{memory / _GIB:.2f}".rstrip("0").rstrip(".") + "Gi",
            **dict(zip(others, map(str, more), strict=False)),
        },
    }
