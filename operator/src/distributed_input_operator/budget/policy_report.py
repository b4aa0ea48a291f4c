"""What the policy's status says. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distributed_input.api import timestamps
from distributed_input.api.resource.policy import UNLIMITED, PolicyStatus
from distributed_input_operator.budget.ledger import Used

_GIB = 1 << 30


def report(
    before: PolicyStatus,
    generation: int,
    message: str,
    used: Sequence[Used],
    now: float,
    pause: float,
) -> tuple[dict[str, Any] | None, float]:
    """The status to write, None where the last one says it still or is young; when to look again.

    Args:
        before: as it was last written.
        generation: of the spec.
        message: why the spec cannot be used; empty where it is in force.
        used: what each budget has given.
        now: seconds since 1970.
        pause: seconds between two writes for the sake of numbers that always change.
    """
    status = {
        "observedGeneration": generation,
        "message": message,
        "summary": ", ".join(map(_summary, used)),
        "budgets": [_budget(one) for one in used],
        "observedAt": before.observed_at,
    }
    if PolicyStatus.model_validate(status) == before:
        return None, 10 * pause
    written = timestamps.to_seconds(before.observed_at)
    same = (before.observed_generation, before.message) == (generation, message)
    if same and written is not None and now - written < pause:
        return None, pause - (now - written)
    return {**status, "observedAt": timestamps.to_text(now)}, pause


def _summary(one: Used) -> str:
    limit = one.budget.limits[0]
    most = "" if limit == UNLIMITED else f"/{limit}"
    return f"{one.budget.name} {one.used[0]}{most}"


def _budget(one: Used) -> dict[str, Any]:
    workers, cpu, memory = one.used
    return {
        "name": one.budget.name,
        "inputs": one.inputs,
        "workers": workers,
        "wanted": one.wanted,
        "cpu": f"{cpu / 1000:g}",
        "memory": f"{memory / _GIB:.2f}".rstrip("0").rstrip(".") + "Gi",
    }
