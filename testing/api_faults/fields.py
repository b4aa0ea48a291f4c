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
    "processingMode numSplits partitions seed batching.globalBatchSize operatorClass "
    "encryption".split()
)
"""Fields whose change the API server refuses."""
_DEFINITION = Path(__file__).parents[2] / "crds" / "distributedinputs.yaml"
_MOST = 50
"""Random integers are this far above their minimum at most."""

# Values that a schema does not give, with the fields that they need.
_SPECIAL: dict[str, Json] = {
    "dataset.entryPoint": {
        "dataset": {"type": "EntryPoint", "entryPoint": {"function": "other.code:make"}}
    },
    "dataset.args": {"dataset": {"args": {"size": 3}}},
    "dataset.source.path": {"dataset": {"source": {"path": "code"}}},
    "dataset.source.configMap": {"dataset": {"source": {"configMap": CODE}}},
    "dataset.source.image": {"dataset": {"source": {"image": True}}},
    "dataset.fromTrainer": {"dataset": {"type": "Trainer"}},
    "workers.replicas": {"workers": {"replicas": 3}},
    "workers.autoscaling.minReplicas": {
        "workers": {"autoscaling": {"minReplicas": 2, "maxReplicas": 4}}
    },
    "workers.autoscaling.maxReplicas": {"workers": {"autoscaling": {"maxReplicas": 4}}},
    "workers.autoscaling.paused": {"workers": {"autoscaling": {"maxReplicas": 4, "paused": True}}},
    "workers.autoscaling.stabilizationWindowSeconds": {
        "workers": {"autoscaling": {"maxReplicas": 4, "stabilizationWindowSeconds": 7}}
    },
    "workers.autoscaling.idleTTLSeconds": {
        "workers": {"autoscaling": {"maxReplicas": 4, "idleTTLSeconds": 3600}}
    },
    "workers.local.cpus": {"workers": {"local": {"cpus": 3, "memory": "2Gi"}}},
    "workers.local.memory": {"workers": {"local": {"cpus": 1, "memory": "3Gi"}}},
    "workers.accelerator.type": {"workers": {"accelerator": {"resourceName": "nvidia.com/gpu"}}},
    "workers.accelerator.product": {
        "workers": {
            "accelerator": {
                "resourceName": "nvidia.com/gpu",
                "nodeSelector": {"nvidia.com/gpu.product": "L4"},
            }
        }
    },
    "workers.accelerator.count": {
        "workers": {"accelerator": {"resourceName": "nvidia.com/gpu", "count": 2}}
    },
    "workers.accelerator.topology": {
        "workers": {
            "accelerator": {
                "resourceName": "google.com/tpu",
                "nodeSelector": {
                    "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                    "cloud.google.com/gke-tpu-topology": "2x2",
                },
            }
        }
    },
    "workers.priorityClassName": {
        "workers": {"template": {"spec": {"priorityClassName": "system-cluster-critical"}}}
    },
    "workers.serviceAccountName": {
        "workers": {"template": {"spec": {"serviceAccountName": "default"}}}
    },
    "workers.nodeSelector": {
        "workers": {"template": {"spec": {"nodeSelector": {"pool": "input"}}}}
    },
    "workers.tolerations": {
        "workers": {"template": {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}}
    },
    "dispatcher.priorityClassName": {
        "dispatcher": {"priorityClassName": "system-cluster-critical"}
    },
    "dispatcher.nodeSelector": {"dispatcher": {"nodeSelector": {"pool": "input"}}},
    "dispatcher.tolerations": {"dispatcher": {"tolerations": [{"key": "x", "operator": "Exists"}]}},
    "workers.env": {
        "workers": {
            "template": {
                "spec": {
                    "containers": [{"name": "worker", "env": [{"name": "LEVEL", "value": "3"}]}]
                }
            }
        }
    },
    "workers.volumes": {
        "workers": {"template": {"spec": {"volumes": [{"name": "more", "emptyDir": {}}]}}}
    },
    "workers.volumeMounts": {
        "workers": {
            "template": {
                "spec": {
                    "volumes": [{"name": "more", "emptyDir": {}}],
                    "containers": [
                        {"name": "worker", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}
                    ],
                }
            }
        }
    },
    "workers.stateDirectory": {"workers": {"stateDirectory": "/states"}},
    "workers.podTemplate": {
        "workers": {
            "podTemplate": {
                "metadata": {"annotations": {"note": "1"}},
                "spec": {"containers": [{"name": "side", "image": "side:1"}]},
            }
        }
    },
    "encryption": {"encryption": "All"},
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
    """Yield each field without fields of its own, with its schema."""
    for name, one in schema.get("properties", {}).items():
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
    return result
