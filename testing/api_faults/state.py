"""What is compared after faults: an input's objects, without what the API server sets."""

from __future__ import annotations

import json
from typing import Any

from distributed_input.api import names
from distributed_input_operator.kube.kinds import BY_NAME, INPUT, POLICY
from distributed_input_operator.objects.children import APPLIED_ANNOTATION
from testing.operator.cluster import Cluster, Json

State = dict[str, Any]

_KINDS = sorted(set(BY_NAME) - {INPUT.kind, POLICY.kind, "Event", "Pod"})
_REVISION = "deployment.kubernetes.io/revision"
_HASHES = (APPLIED_ANNOTATION, names.TEMPLATE_HASH_ANNOTATION)
"""Annotations that depend on the names. What they are computed from is compared."""
_CERTIFICATE = "-----BEGIN CERTIFICATE-----"
_UNTOLD = ("Unmeasured",)
"""Conditions that depend on the time: whether a dispatcher was asked already."""


def state_of(cluster: Cluster, name: str) -> State:
    """Return the objects of an input by kind and name, and its conditions.

    The names of the input and of its namespace are replaced, so that inputs with equal specs have
    equal states. An object that another input of the same name owned is visible as such.
    """
    selector = f"{names.INPUT_LABEL}={name}"
    found = cluster.get(INPUT.kind, name)
    uid = found["metadata"]["uid"] if found else ""
    state: State = {
        f"{kind}/{one['metadata']['name']}": _content(one, uid)
        for kind in _KINDS
        for one in cluster.list(kind, selector)
    }
    workers = sum(1 for _ in cluster.pods(name))
    state["pods"] = {"worker": workers, "dispatcher": len(cluster.pods(name, "dispatcher"))}
    if found:
        state["status"] = _status(found)
    text = json.dumps(state, sort_keys=True).replace(cluster.namespace, "NAMESPACE")
    replaced: State = json.loads(text.replace(name, "NAME"))
    return replaced


def _content(obj: Json, uid: str) -> Json:
    meta = obj["metadata"]
    annotations = dict(meta.get("annotations", {}))
    for one in (*_HASHES, _REVISION):
        annotations.pop(one, None)
    owners = [
        {**one, "uid": "current" if one["uid"] == uid else "another"}
        for one in meta.get("ownerReferences", [])
    ]
    content = {key: value for key, value in obj.items() if key not in ("metadata", "status")}
    if obj.get("data") and "type" in obj:  # a Secret: its token depends on the uid
        content["data"] = sorted(obj["data"])
    elif obj.get("data"):  # a ConfigMap: a new certificate is never equal to the one before
        content["data"] = {
            key: _CERTIFICATE if value.startswith(_CERTIFICATE) else value
            for key, value in obj["data"].items()
        }
    spec = {key: one for key, one in obj.get("spec", {}).items() if not key.startswith("clusterIP")}
    return {
        **content,
        **({"spec": spec} if spec else {}),
        "labels": meta.get("labels", {}),
        "annotations": annotations,
        "owners": owners,
    }


def _status(found: Json) -> Json:
    status = found.get("status", {})
    conditions = [
        f"{one['type']}={one['status']} {one['reason']}"
        for one in status.get("conditions", [])
        if one["type"] not in _UNTOLD
    ]
    observed = status.get("observedGeneration") == found["metadata"]["generation"]
    return {"conditions": sorted(conditions), "observed": observed}


def difference(one: State, other: State) -> str:
    """Return the first fields in which two states differ. Empty: they are equal."""
    return "; ".join(_differences(one, other, ""))[:2000]


def _differences(one: Any, other: Any, path: str) -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            text
            for key in sorted({*one, *other})
            for text in _differences(one.get(key), other.get(key), f"{path}.{key}")
        ]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [text for at, pair in pairs for text in _differences(*pair, f"{path}.{at}")]
    if one == other:
        return []
    return [f"{path[1:]}: {json.dumps(one)[:300]} is not {json.dumps(other)[:300]}"]
