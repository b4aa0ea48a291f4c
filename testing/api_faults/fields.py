"""Another valid value for each field of an input's spec, from the definition's schema."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
Field = tuple[str, ...]

BASE: Json = {
    "dataset": {"type": "EntryPoint", "entryPoint": {"function": "digits:dataset_fn"}},
    "workers": {"replicas": 1},
    "encryption": "None",
}
CODE = "acto-code"
"""Name of a ConfigMap that must exist."""
IMMUTABLE = frozenset(
    "processingMode numSplits partitions seed batching.globalBatchSize managedBy encryption".split()
)
"""Fields whose change the API server refuses."""
_DEFINITION = Path(__file__).parents[2] / "crds" / "distributedinputs.yaml"
_MOST = 50
"""Random integers are this far above their minimum at most."""


def template(pod: Json | None = None, **container: Any) -> Json:
    """Return a spec with fields of the workers' pods, and of their container."""
    containers = {"containers": [{"name": "worker", **container}]} if container else {}
    return {"workers": {"template": {"spec": {**(pod or {}), **containers}}}}


def _entry(**fields: Any) -> Json:
    return {"dataset": {"entryPoint": fields}}


def _scaling(**fields: Any) -> Json:
    return {"workers": {"replicas": None, "autoscaling": {"maxReplicas": 4, **fields}}}


def _devices(**fields: Any) -> Json:
    return {"workers": {"accelerator": {"resourceName": "nvidia.com/gpu", **fields}}}


def _mixture(**fields: Any) -> Json:
    return {"mixture": {"weights": {"books": 1, "code": 3}, **fields}}


def _excluded(**fields: Any) -> Json:
    return {"badRecords": {"exclude": [{"step": "parse", "index": 7, **fields}]}}


_CHANGE = {"step": 10, "weights": {"books": 1, "code": 1}}
_TOLERATIONS = [{"key": "x", "operator": "Exists"}]
_VOLUMES = [{"name": "more", "emptyDir": {}}]
_POD, _CONTAINER = "workers.template.spec", "workers.template.spec.containers"
# Values that a schema does not give, with the fields that they need.
_SPECIAL: dict[str, Json] = {
    "dataset.type": {"dataset": {"type": "Trainer", "entryPoint": None}},
    "dataset.entryPoint.function": _entry(function="other.code:make"),
    "dataset.entryPoint.args": _entry(args={"size": 3}),
    "dataset.entryPoint.source.type": _entry(source={"type": "Image"}),
    "dataset.entryPoint.source.path": _entry(source={"type": "Path", "path": "code"}),
    "dataset.entryPoint.source.configMap.name": _entry(
        source={"type": "ConfigMap", "configMap": {"name": CODE}}
    ),
    "mixture.weights": _mixture(),
    "mixture.schedule.step": _mixture(schedule=[_CHANGE]),
    "mixture.schedule.weights": _mixture(
        schedule=[{**_CHANGE, "weights": {"books": 1, "code": 0}}]
    ),
    "mixture.onExhausted": _mixture(onExhausted="Drop"),
    "badRecords.sources": {
        **_mixture(),
        "badRecords": {"sources": {"books": {"maxPerSplit": 3, "maxPercent": 1}}},
    },
    "badRecords.exclude.step": _excluded(),
    "badRecords.exclude.index": _excluded(index=8),
    "badRecords.exclude.file": _excluded(file="/a"),
    "badRecords.exclude.split": _excluded(split=0),
    "badRecords.exclude.epoch": _excluded(epoch=0),
    "badRecords.exclude.source": {**_mixture(), **_excluded(source="books")},
    "packing.method": {"packing": {"length": 2048, "method": "FirstFit"}},
    "packing.openSequences": {"packing": {"length": 2048, "openSequences": 8}},
    "packing.balanceWindow": {"packing": {"length": 2048, "balanceWindow": 256}},
    "workers.replicas": {"workers": {"replicas": 3}},
    "workers.autoscaling.minReplicas": _scaling(minReplicas=2),
    "workers.autoscaling.maxReplicas": _scaling(),
    "workers.autoscaling.paused": _scaling(paused=True),
    "workers.autoscaling.stabilizationWindowSeconds": _scaling(stabilizationWindowSeconds=7),
    "workers.autoscaling.idleTTLSeconds": _scaling(idleTTLSeconds=3600),
    "workers.local.cpus": {"workers": {"local": {"cpus": 3, "memory": "2Gi"}}},
    "workers.local.memory": {"workers": {"local": {"cpus": 1, "memory": "3Gi"}}},
    "workers.accelerator.resourceName": _devices(),
    "workers.accelerator.count": _devices(count=2),
    "workers.accelerator.nodeSelector": _devices(nodeSelector={"nvidia.com/gpu.product": "L4"}),
    "workers.stateDirectory": {"workers": {"stateDirectory": "/states"}},
    "store.size": {"store": {"size": "300Mi"}},
    "store.claimName": {"store": {"claimName": "stored-splits"}},
    "workers.template.metadata": {
        "workers": {"template": {"metadata": {"annotations": {"note": "1"}}}}
    },
    f"{_POD}.priorityClassName": template({"priorityClassName": "system-cluster-critical"}),
    f"{_POD}.serviceAccountName": template({"serviceAccountName": "default"}),
    f"{_POD}.nodeSelector": template({"nodeSelector": {"pool": "input"}}),
    f"{_POD}.tolerations": template({"tolerations": _TOLERATIONS}),
    f"{_POD}.volumes": template({"volumes": _VOLUMES}),
    f"{_CONTAINER}.name": template({"containers": [{"name": "side", "image": "side:1"}]}),
    f"{_CONTAINER}.image": template(image="other:2"),
    f"{_CONTAINER}.resources.requests": template(resources={"requests": {"cpu": "300m"}}),
    f"{_CONTAINER}.resources.limits": template(resources={"limits": {"memory": "1Gi"}}),
    f"{_CONTAINER}.resources.claims": template(
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
        resources={"claims": [{"name": "gpu"}]},
    ),
    f"{_CONTAINER}.env": template(env=[{"name": "LEVEL", "value": "3"}]),
    f"{_CONTAINER}.volumeMounts": template(
        {"volumes": _VOLUMES}, volumeMounts=[{"name": "more", "mountPath": "/more"}]
    ),
    "dispatcher.priorityClassName": {
        "dispatcher": {"priorityClassName": "system-cluster-critical"}
    },
    "dispatcher.nodeSelector": {"dispatcher": {"nodeSelector": {"pool": "input"}}},
    "dispatcher.tolerations": {"dispatcher": {"tolerations": _TOLERATIONS}},
    "trainers.weight": {"trainers": {"weight": "700m"}},
    "encryption": {"encryption": "All"},
    "managedBy": {"managedBy": "distributed-input.dev/canary"},
    "tfDataService.journal": {"tfDataService": {"journal": {"emptyDir": {"medium": "Memory"}}}},
}
_TEXTS = {"image": "other:2", "accelerator": "h100", "priorityClass": "release"}
_QUANTITY = "300Mi"


@dataclass(frozen=True)
class Change:
    """One field with another value."""

    field: str
    spec: Json
    """The whole spec."""


def changes(seed: int = 0) -> list[Change]:
    """Return one change for each field of the spec that is not immutable."""
    chance = random.Random(seed)
    return [
        Change(field, _merged(BASE, _patch(path, schema, chance)))
        for path, schema in leaves(spec_schema())
        if (field := ".".join(path)) not in IMMUTABLE
    ]


def refused_changes(seed: int = 0) -> list[Change]:
    """Return one change for each immutable field."""
    chance = random.Random(seed)
    return [
        Change(".".join(path), _merged(BASE, _patch(path, schema, chance)))
        for path, schema in leaves(spec_schema())
        if ".".join(path) in IMMUTABLE
    ]


def spec_schema() -> Json:
    """Return the schema of the spec."""
    definition: Json = yaml.safe_load(_DEFINITION.read_text())
    schema: Json = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec: Json = schema["properties"]["spec"]
    return spec


def leaves(schema: Json, path: Field = ()) -> Iterator[tuple[Field, Json]]:
    """Yield each field without fields of its own, with its schema: also those of list elements."""
    for name, one in schema.get("properties", {}).items():
        one = one.get("items", one) if "properties" in one.get("items", {}) else one
        if "properties" in one:
            yield from leaves(one, (*path, name))
        else:
            yield (*path, name), one


def _patch(path: Field, schema: Json, chance: random.Random) -> Json:
    if special := _SPECIAL.get(".".join(path)):
        return special
    patch: Any = _value(path, schema, chance)
    for name in reversed(path):
        patch = {name: patch}
    made: Json = patch
    return made


def _value(path: Field, schema: Json, chance: random.Random) -> Any:
    default = schema.get("default")
    if "enum" in schema:
        return chance.choice([one for one in schema["enum"] if one != default])
    if "x-kubernetes-int-or-string" in schema:
        return _QUANTITY
    kind = schema["type"]
    if kind == "boolean":
        return not default
    if kind in ("integer", "number"):
        least = schema.get("minimum", 0)
        most = min(schema.get("maximum", least + _MOST), max(least, default or 0) + _MOST)
        found = [one for one in range(int(least) + 1, int(most) + 1) if one != default]
        return chance.choice(found)
    if kind == "object":  # resources
        return {"memory": "1Gi"} if path[-1] == "limits" else {"cpu": "300m"}
    return _TEXTS.get(path[-1], "canary")


def _merged(base: Json, patch: Json) -> Json:
    result = copy.deepcopy(base)
    for key, value in patch.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else value
    return {key: value for key, value in result.items() if value is not None}
