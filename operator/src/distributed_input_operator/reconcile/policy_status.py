"""The status of the cluster's InputPolicy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed_input.api import timestamps
from distributed_input.api.resource.policy import UNLIMITED
from distributed_input.api.resource.policy_status import PolicyStatus
from distributed_input_operator.budget.usage import BudgetUsage

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

    The status is None if the last one is still right or too recent.

    Args:
        before: the status as it was last written.
        generation: the spec's generation.
        message: why the spec cannot be used. Empty: it is in use.
        usage: how much of each budget is used.
        now: seconds since 1970.
        interval: minimum seconds between two writes of numbers that change all the time.
        others: names of the resources besides CPU and memory that budgets limit.
    """
    status = {
        "observedGeneration": generation,
        "message": message,
        "summary": ", ".join(map(_summary, usage)),
        "budgets": [_budget(one, others) for one in usage],
        "observedAt": before.observed_at,
    }
    if PolicyStatus.model_validate(status) == before:
        return None, 10 * interval
    written = timestamps.to_seconds(before.observed_at)
    same_spec = (before.observed_generation, before.message) == (generation, message)
    if same_spec and written is not None and now - written < interval:
        return None, interval - (now - written)
    return {**status, "observedAt": timestamps.to_text(now)}, interval


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
        "wanted": one.requested,
        "cpu": f"{cpu / 1000:g}",
        "memory": f"{memory / _GIB:.2f}".rstrip("0").rstrip(".") + "Gi",
        "resources": dict(zip(others, map(str, more), strict=False)),
    }
