"""Valid inputs and policies, generated from the schemas of their models."""

from __future__ import annotations

import copy
import functools
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from pydantic import BaseModel, ValidationError

from distributed_input.api.resource.crd import structural
from distributed_input.api.resource.input import API_VERSION, DistributedInput
from distributed_input.api.resource.policy import InputPolicy
from distributed_input.api.resource.policy_status import PolicyStatus
from distributed_input.api.resource.status import Status
from distributed_input.api.resource.v1beta1.input import BETA_VERSION, BetaInput
from distributed_input.api.resource.v1beta1.policy import BetaPolicy, BetaPolicyStatus
from distributed_input.api.resource.v1beta1.status import BetaStatus

Json = dict[str, Any]
_Models = dict[str, type[BaseModel]]
MODELS: _Models = {API_VERSION: DistributedInput, BETA_VERSION: BetaInput}
POLICIES: _Models = {API_VERSION: InputPolicy, BETA_VERSION: BetaPolicy}
_STATUS: _Models = {API_VERSION: Status, BETA_VERSION: BetaStatus}
_POLICY_STATUS: _Models = {API_VERSION: PolicyStatus, BETA_VERSION: BetaPolicyStatus}
_MAX_REPAIRS = 40

_VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "1"])
_DATA = st.recursive(
    _VALUES,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b", "type"]), inner, max_size=2)
    ),
    max_leaves=4,
)
_NAMED = st.sampled_from(["worker", "side", "code", ""])
_CONTAINER = st.fixed_dictionaries(
    {},
    optional={
        "name": _NAMED | _DATA,
        "image": st.sampled_from(["one:1", "two:2", "", None]),
        "env": st.lists(st.sampled_from([{"name": "A", "value": "1"}, {"name": "B"}]), max_size=2)
        | _DATA,
        "resources": st.sampled_from(
            [{"limits": {"cpu": "2"}}, {"requests": {"memory": 5}}, {"claims": [{"name": "x"}]}]
        )
        | _DATA,
        "args": st.just(["--more"]),
        "volumeMounts": st.just([{"name": "code", "mountPath": "/code"}]) | _DATA,
    },
)
_POD = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(_CONTAINER, max_size=3) | _DATA,
        "initContainers": st.lists(_CONTAINER, max_size=1),
        "tolerations": st.just([{"key": "x"}]) | _DATA,
        "volumes": st.lists(st.sampled_from([{"name": "code", "emptyDir": {}}]), max_size=1)
        | _DATA,
        "nodeSelector": st.just({"pool": "a"}) | _DATA,
        "serviceAccountName": st.sampled_from(["reader", "NOT A NAME", None]),
        "terminationGracePeriodSeconds": st.sampled_from([1, 5, 60, "60"]),
        "hostNetwork": st.booleans(),
        "resourceClaims": st.just([{"name": "x", "resourceClaimTemplateName": "gpu"}]),
    },
)
_TEMPLATE = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.just({"labels": {"team": "a"}}) | st.just({}),
        "spec": _POD | st.just({}),
    },
)
_TEXTS = {
    "name": ["worker", "side", "digits"],
    "entryPoint": ["digits:dataset_fn", "a.b:c"],
    "function": ["digits:dataset_fn", "a.b:c"],
    "operatorClass": ["canary", "a", "external-1", "c" * 40],
    "managedBy": [
        "distributed-input.dev/canary",
        "distributed-input.dev/Not_A_Class",
        "kueue.x-k8s.io/multikueue",
        f"distributed-input.dev/{'c' * 40}",
    ],
    "resourceName": ["nvidia.com/gpu", "google.com/tpu", "amd.com/gpu"],
    "topology": ["2x2", "2x2x4"],
    "stateDirectory": ["/states"],
    "path": [".", "/code"],
    "key": ["team", "tier"],
    "namespaces": ["vision", "speech"],
}
_QUANTITIES: dict[str, list[Any]] = {
    "weight": ["1m", "500m", "0.5", 1, "1", "1k", ".25", "1001m", "1.2345678901", 1000],
    "stallCosts": ["0", 0, "1m", "1200m", "1M", 1000000, "0.000000000000001"],
    "": ["1Mi", "256Mi", 1 << 20, "1.5Gi", "1Ti", "268435456"],
}
_LABELS = [
    {},
    {"pool": "a"},
    {"nvidia.com/gpu.product": "L4"},
    {"cloud.google.com/gke-accelerator": "l4"},
    {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x2",
    },
]
_LISTS: dict[str, list[Json]] = {
    "env": [{"name": "A", "value": "1"}, {"name": "HOME", "value": "/x"}, {"name": "A"}],
    "volumeMounts": [{"name": "v", "mountPath": "/v"}, {"name": "scratch", "mountPath": "/tmp"}],
    "volumes": [{"name": "v", "emptyDir": {}}, {"name": "code", "emptyDir": {}}],
    "tolerations": [{"key": "pool", "operator": "Exists"}, {}],
}
_ACCELERATORS = [
    {"type": "nvidia"},
    {"type": "nvidia", "product": "L4", "count": 2},
    {"type": "gke-nvidia", "count": 1},
    {"type": "gke-nvidia", "product": "l4"},
    {"type": "gke-tpu", "product": "tpu-v5-lite-podslice", "topology": "2x2"},
]


@functools.cache
def schema_of(version: str) -> tuple[Json, Json]:
    """Return the structural schemas of spec and status of inputs."""
    return _schemas(MODELS[version], _STATUS[version])


def _schemas(model: type[BaseModel], status_model: type[BaseModel]) -> tuple[Json, Json]:
    whole, status = model.model_json_schema(), status_model.model_json_schema()
    spec = structural(whole["properties"]["spec"], whole["$defs"])
    return spec, structural(status, status.get("$defs", {}))


@functools.cache
def _sections(kind: str, version: str) -> tuple[SearchStrategy[Any], SearchStrategy[Any]]:
    models, statuses = _KINDS[kind]
    spec, status = _schemas(models[version], statuses[version])
    return _value("spec", spec), _value("status", status)


_KINDS = {"DistributedInput": (MODELS, _STATUS), "InputPolicy": (POLICIES, _POLICY_STATUS)}


@st.composite
def inputs(draw: DrawFn, version: str) -> Json:
    """Generate a valid input of a version. Each field is set or not."""
    return _resource(draw, "DistributedInput", version, "x")


@st.composite
def policies(draw: DrawFn, version: str) -> Json:
    """Generate a valid policy of a version. Each field is set or not."""
    return _resource(draw, "InputPolicy", version, "cluster")


def _resource(draw: DrawFn, kind: str, version: str, name: str) -> Json:
    spec, status = _sections(kind, version)
    made: Json = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
    if draw(st.booleans()):
        made["metadata"]["annotations"] = {"note": "mine"}
    if draw(st.integers(0, 9)):
        made["spec"] = draw(spec)
    if draw(st.booleans()):
        made["status"] = draw(status)
    return _repaired(made, _KINDS[kind][0][version])


def _value(name: str, schema: Json) -> SearchStrategy[Any]:
    for known, found in (
        (_TEMPLATE, name == "podTemplate"),
        (st.sampled_from(_ACCELERATORS), name == "accelerator" and "type" in _fields(schema)),
        (st.lists(st.sampled_from(_LISTS.get(name, [{}])), max_size=2), name in _LISTS),
        (st.sampled_from(_LABELS), name == "nodeSelector"),
        (st.sampled_from(schema.get("enum", [""])), "enum" in schema),
        (
            st.sampled_from(_QUANTITIES.get(name, _QUANTITIES[""])),
            "x-kubernetes-int-or-string" in schema,
        ),
        (
            st.dictionaries(st.sampled_from(["a", "b"]), _DATA, max_size=2),
            name in ("args", "metadata", "journal"),
        ),
    ):
        if found:
            return known
    return _section(schema) if _fields(schema) else _plain(name, schema)


def _plain(name: str, schema: Json) -> SearchStrategy[Any]:
    least = schema.get("minimum", 0)
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(least, min(schema.get("maximum", least + 9), least + 9))
        case "number":
            tiny = [1e-45] if least == 0 else []
            return st.floats(least, schema["maximum"]) | st.sampled_from([1, 0.5, *tiny])
        case "array":
            return st.lists(_value(name, schema["items"]), max_size=3 if name == "budgets" else 2)
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            keys = st.sampled_from(["cpu", "memory", "amd.com/gpu"])
            value = _value(name if name == "stallCosts" else "", schema["additionalProperties"])
            return st.dictionaries(keys, value, max_size=2)
        case "object":
            return st.dictionaries(st.sampled_from(["name", "key", "value"]), st.just("a"))
    return st.sampled_from(_TEXTS.get(name, ["a", "b"]))


def _fields(schema: Json) -> Json:
    found: Json = schema.get("properties", {})
    return found


def _section(schema: Json) -> SearchStrategy[Json]:
    required = set(schema.get("required", []))
    fields = {name: _value(name, one) for name, one in schema["properties"].items()}
    needed = {name: one for name, one in fields.items() if name in required}
    return st.fixed_dictionaries(
        needed, optional={name: one for name, one in fields.items() if name not in required}
    )


def _repaired(made: Json, model: type[BaseModel]) -> Json:
    """Return a resource without the fields that make it invalid."""
    result = copy.deepcopy(made)
    for _ in range(_MAX_REPAIRS):
        try:
            model.model_validate(result)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                _remove(result, [*detail["loc"], *detail.get("ctx", {}).get("at", [])])
        else:
            return result
    raise AssertionError(f"cannot repair {made}")


def _remove(value: Any, path: list[Any]) -> None:
    """Remove a field, or the nearest parent of a missing one."""
    parents = [value]
    for key in path[:-1]:
        try:
            parents.append(parents[-1][key])
        except (KeyError, IndexError, TypeError):
            break
    for parent, key in reversed(list(zip(parents, path, strict=False))):
        if (isinstance(parent, dict) and key in parent) or (
            isinstance(parent, list) and key < len(parent)
        ):
            del parent[key]
            return
