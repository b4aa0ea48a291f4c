"""How far the pods of a Deployment follow its spec, from its status. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distributed_input_operator.objects.snapshot import Manifest

DEADLINE = "ProgressDeadlineExceeded"
"""Reason of a Deployment whose pods made no progress for its `progressDeadlineSeconds`."""
_ROLLED_OUT = "NewReplicaSetAvailable"


@dataclass(frozen=True)
class Rollout:
    """The state of a Deployment's latest template."""

    complete: bool
    """Whether no pod has an earlier template, and enough pods are available."""
    updated: int
    """Number of pods with the latest template."""
    older: int
    """Number of pods with an earlier template."""
    failed: str = ""
    """The Deployment's message if its deadline has passed without progress. Otherwise empty."""


def is_observed(live: Manifest) -> bool:
    """Return whether a Deployment's status is about its latest spec."""
    status = live.get("status") or {}
    seen, generation = status.get("observedGeneration", 0), live.get("metadata", {})
    return int(seen) >= int(generation.get("generation", 0))


def is_rolling(live: Manifest) -> bool:
    """Return whether the pods of a Deployment do not have its latest template yet.

    Later losses of pods do not count: the reason stays that of a complete rollout.
    """
    if not live or not (live.get("spec") or {}).get("replicas"):
        return False
    if not is_observed(live) or _progress(live).get("reason") != _ROLLED_OUT:
        return True
    return is_stopping(live)


def is_stopping(live: Manifest) -> bool:
    """Return whether earlier pods exist, or no pod at all, after the last complete rollout.

    With the strategy Recreate, and if the template is that of an earlier ReplicaSet, the reason is
    still that of the rollout before. The Deployment's deadline is not in force then. A pod that
    cannot be created, as for a quota, is not a rollout.
    """
    if not is_observed(live) or _progress(live).get("reason") != _ROLLED_OUT:
        return False
    status = live.get("status") or {}
    older = int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))
    return older > 0 or not (status.get("updatedReplicas") or refusal_message(live))


def refusal_message(live: Manifest) -> str:
    """Return why the API server refuses pods of a Deployment. Empty: it does not."""
    found = _conditions(live).get("ReplicaFailure", {})
    return str(found.get("message") or "refused") if found.get("status") == "True" else ""


def has_only_latest_pods(live: Manifest) -> bool:
    """Return whether a Deployment's deadline has passed, and no pod has an earlier template."""
    status = live.get("status") or {}
    older = int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))
    return is_observed(live) and _progress(live).get("reason") == DEADLINE and older <= 0


def failure_message(live: Manifest) -> str:
    """Return the message of a Deployment that made no progress in time. Empty: it does."""
    progress = _progress(live)
    return str(progress.get("message", "")) if progress.get("reason") == DEADLINE else ""


def rollout(live: Manifest, desired: int, minimum: int) -> Rollout:
    """Return how far the rollout of a Deployment is.

    It ends when all desired pods are available. Later, while autoscaling changes the number,
    `minimum` must be.
    """
    status = live.get("status") or {}
    replicas, updated = int(status.get("replicas", 0)), int(status.get("updatedReplicas", 0))
    enough = minimum if _progress(live).get("reason") == _ROLLED_OUT else desired
    available = int(status.get("availableReplicas", 0))
    return Rollout(
        complete=updated >= replicas and available >= enough,
        updated=updated,
        older=max(0, replicas - updated),
        failed=failure_message(live),
    )


def _progress(live: Manifest) -> dict[str, Any]:
    return _conditions(live).get("Progressing", {})


def _conditions(live: Manifest) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in (live.get("status") or {}).get("conditions", [])}
