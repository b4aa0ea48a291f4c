"""Spec and status in one version, from those in the other. Each field that both versions have."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from distributed_input.api.resource.conversion.dataset import alpha_dataset, beta_dataset
from distributed_input.api.resource.conversion.kept import Json
from distributed_input.api.resource.conversion.quantities import alpha_number, beta_number
from distributed_input.api.resource.conversion.workers import alpha_workers, beta_workers
from distributed_input.api.resource.input import GROUP

_Enums = dict[tuple[str, ...], dict[Any, Any]]
ENUMS: _Enums = {
    ("processingMode",): {
        "distributed_epoch": "DistributedEpoch",
        "parallel_epochs": "ParallelEpochs",
    },
    ("order",): {"strict": "Strict", "any": "Any"},
    ("determinism",): {"strict": "Strict", "warn": "Warn", "relaxed": "Relaxed"},
    ("batching", "remainder"): {"keep": "Keep", "drop": "Drop", "pad": "Pad"},
    ("encryption",): {"none": "None", "control": "Control", "all": "All"},
    ("networkPolicy",): {True: "Restricted", False: "Open"},
    ("workers", "placement"): {
        "anywhere": "Anywhere",
        "near-trainers": "NearTrainers",
        "dedicated": "Dedicated",
    },
    ("sidecar", "transfer"): {"auto": "Auto", "grpc": "GRPC"},
}
"""The values of fields that are the same otherwise: in v1alpha1, and in v1beta1."""
_STATUS_ENUMS: _Enums = {("encryption",): ENUMS[("encryption",)]}
"""The same for the status."""
_CLASS = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_EXTERNAL = "external-"


def to_beta(body: Json) -> Json:
    """Return spec and status of v1beta1."""
    result = dict(body)
    if isinstance(spec := body.get("spec"), dict):
        result["spec"] = _beta_spec(spec)
    if isinstance(status := body.get("status"), dict):
        result["status"] = _beta_status(status)
    return result


def to_alpha(body: Json) -> Json:
    """Return spec and status of v1alpha1."""
    result = dict(body)
    if isinstance(spec := body.get("spec"), dict):
        result["spec"] = _alpha_spec(spec)
    if isinstance(status := body.get("status"), dict):
        result["status"] = _alpha_status(status)
    return result


def _beta_spec(spec: Json) -> Json:
    spec = _with_enums(spec, ENUMS)
    result = {key: value for key, value in spec.items() if key != "operatorClass"}
    if isinstance(dataset := spec.get("dataset"), dict):
        result["dataset"] = beta_dataset(dataset)
    if isinstance(workers := spec.get("workers"), dict):
        result["workers"] = beta_workers(workers)
    if isinstance(trainers := spec.get("trainers"), dict) and "weight" in trainers:
        result["trainers"] = {**trainers, "weight": beta_number(trainers["weight"])}
    if "operatorClass" in spec:
        result["managedBy"] = f"{GROUP}/{spec['operatorClass']}"
    return result


def _alpha_spec(spec: Json) -> Json:
    spec = _with_enums(spec, _reversed(ENUMS))
    result = {key: value for key, value in spec.items() if key != "managedBy"}
    if isinstance(dataset := spec.get("dataset"), dict):
        result["dataset"] = alpha_dataset(dataset)
    if isinstance(workers := spec.get("workers"), dict):
        result["workers"] = alpha_workers(workers)
    if isinstance(trainers := spec.get("trainers"), dict) and "weight" in trainers:
        result["trainers"] = {**trainers, "weight": alpha_number(trainers["weight"])}
    if "managedBy" in spec:
        result["operatorClass"] = _operator_class(str(spec["managedBy"]))
    return result


def _operator_class(manager: str) -> str:
    """Return the class of a controller. No operator has that of another project's controller."""
    group, _, name = manager.partition("/")
    if group == GROUP and _CLASS.fullmatch(name):
        return name
    return f"{_EXTERNAL}{hashlib.sha256(manager.encode()).hexdigest()[:20]}"


def _beta_status(status: Json) -> Json:
    status = _with_enums(status, _STATUS_ENUMS)
    result = {key: value for key, value in status.items() if key != "live"}
    if isinstance(live := status.get("live"), dict):
        result["trainers"] = _renamed(_only(live, _LIVE), _LIVE)
    if isinstance(workers := status.get("workers"), dict):
        result["workers"] = _renamed(workers, {"asked": "requested"})
    return result


def _alpha_status(status: Json) -> Json:
    status = _with_enums(status, _reversed(_STATUS_ENUMS))
    result = {key: value for key, value in status.items() if key != "trainers"}
    if isinstance(trainers := status.get("trainers"), dict):
        names = {new: old for old, new in _LIVE.items()}
        result["live"] = _renamed(_only(trainers, names), names)
    if isinstance(workers := status.get("workers"), dict):
        result["workers"] = _renamed(workers, {"requested": "asked"})
    return result


_LIVE = {"consumers": "reading", "rowsPerSecond": "rowsPerSecond", "stall": "stall"}


def _only(section: Json, names: dict[str, str]) -> Json:
    return {key: value for key, value in section.items() if key in names}


def _renamed(section: Json, names: dict[str, str]) -> Json:
    return {names.get(key, key): value for key, value in section.items()}


def _reversed(enums: _Enums) -> _Enums:
    return {path: {new: old for old, new in one.items()} for path, one in enums.items()}


def _with_enums(spec: Json, enums: _Enums) -> Json:
    """Return a section with other values of these fields. Unknown values stay."""
    result = dict(spec)
    for (*parents, last), values in enums.items():
        section: Any = result
        for key in parents:
            if not isinstance(section.get(key), dict):
                break
            section[key] = dict(section[key])
            section = section[key]
        else:
            value = section.get(last)
            if isinstance(value, str | bool) and value in values:
                section[last] = values[value]
    return result
