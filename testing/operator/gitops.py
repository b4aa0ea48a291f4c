"""The health of an input as kubectl, Flux and Argo CD compute it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lupa.lua51 import LuaRuntime

from testing.cluster.kubectl import Kubectl, KubectlError
from testing.operator.documentation import documented_manifest

CURRENT, IN_PROGRESS, FAILED, TERMINATING = "Current", "InProgress", "Failed", "Terminating"
_HEALTH = "resource.customizations.health.distributed-input.dev_DistributedInput"


def kubectl_sees_ready(kubeconfig: Path, namespace: str, name: str) -> bool:
    """Return whether `kubectl wait --for=condition=Ready` succeeds within a second."""
    try:
        Kubectl(kubeconfig, namespace).wait(f"dinput/{name}", "Ready", seconds=1)
    except KubectlError as error:
        if "timed out" not in str(error):
            raise
        return False
    return True


def kstatus(obj: Mapping[str, Any]) -> str:
    """Return the status that Flux computes: Current, InProgress, Failed or Terminating.

    The rules are those of `Compute` in sigs.k8s.io/cli-utils/pkg/kstatus/status for a kind that
    the library does not know.
    """
    meta, status = obj["metadata"], obj.get("status") or {}
    if meta.get("deletionTimestamp"):
        return TERMINATING
    # An object without an observed generation passes this check.
    if status.get("observedGeneration", meta.get("generation")) != meta.get("generation"):
        return IN_PROGRESS
    conditions = status.get("conditions") or []
    for one in conditions:
        if one["type"] == "Reconciling" and one["status"] == "True":
            return IN_PROGRESS
        if one["type"] == "Stalled" and one["status"] == "True":
            return FAILED
    for one in conditions:
        if one["type"] == "Ready":
            return CURRENT if one["status"] == "True" else IN_PROGRESS
    return CURRENT


def argocd_health(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Run the health check of docs/status.md as Argo CD does. Return the status and the message."""
    script = documented_manifest("ConfigMap", "status.md")["data"][_HEALTH]
    lua = LuaRuntime(unpack_returned_tuples=True)
    lua.globals()["obj"] = _table(lua, dict(obj))
    found = lua.execute(script)
    return found.status, found.message


def _table(lua: Any, value: Any) -> Any:
    """Return a JSON value as Lua's tables."""
    if isinstance(value, dict):
        return lua.table_from({key: _table(lua, one) for key, one in value.items()})
    if isinstance(value, list):
        return lua.table_from([_table(lua, one) for one in value])
    return value
