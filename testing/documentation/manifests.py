"""Check the YAML in the documentation against the models, and the labels of pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from distributed_input.api import names
from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input.api.resource.parse import parse_all
from distributed_input.api.resource.policy import POLICY_KIND, InputPolicy
from distributed_input.api.resource.problems import ResourceError

_VALUES = Path(__file__).parents[2] / "charts" / "distributed-input" / "values.yaml"
TESTED = {
    "ScaledObject": "tests/operator/test_prometheus.py",
    "HorizontalPodAutoscaler": "tests/operator/test_horizontal_pod_autoscaler.py",
    "ConfigMap": "testing/operator/gitops.py",
    "Job": "tests/ecosystem/test_kueue.py",
    "externalRules": "tests/operator/test_prometheus.py",
    **dict.fromkeys(
        ("TrainJob", "PyTorchJob", "MPIJob", "RayJob", "LeaderWorkerSet"),
        "tests/unit/distributed_input_operator/injection/test_pod_sets.py",
    ),
}
"""Kinds of other projects, or the only key of a document without a kind, and the file of the tests
that uses the documented text."""


def problems(text: str) -> list[str]:
    """Return what is wrong with the YAML of a block."""
    found: list[str] = []
    for document in yaml.safe_load_all(text):
        found += _problems(document)
    return found


def _problems(document: dict[str, Any]) -> list[str]:
    kind = document.get("kind")
    if kind == POLICY_KIND:
        return _invalid_policy(document)
    if kind == KIND:
        return _invalid_input(document)
    if kind is None and set(document) == {"spec"}:  # a part of an input
        name = {"name": "some"}
        head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": name}
        return _invalid_input({**head, **document})
    if kind is None and set(document) == {"metadata"}:  # a part of a trainer's pod
        return _unknown_names(document["metadata"])
    if (kind or next(iter(document))) in TESTED:
        return []
    values = yaml.safe_load(_VALUES.read_text())
    if kind is None and set(document) <= set(values):
        return _unknown_values(document, values)
    return [f"{kind or list(document)}: no check knows this: add one"]


def _invalid_input(document: dict[str, Any]) -> list[str]:
    try:
        parse_all(yaml.safe_dump(document))
    except ResourceError as error:
        return [str(error)]
    return []


def _invalid_policy(document: dict[str, Any]) -> list[str]:
    try:
        InputPolicy.model_validate(document)
    except ValidationError as error:
        return [str(error)]
    return []


def _unknown_values(given: dict[str, Any], values: dict[str, Any], of: str = "") -> list[str]:
    """Return the given values that the chart does not have. An empty default has any content."""
    found: list[str] = []
    for key, value in given.items():
        if key not in values:
            found.append(f"the chart has no value {of}{key}")
        elif isinstance(value, dict) and values[key]:
            found += _unknown_values(value, values[key], f"{of}{key}.")
    return found


def _unknown_names(metadata: dict[str, Any]) -> list[str]:
    known = {value for key, value in vars(names).items() if isinstance(value, str)}
    given = [*metadata.get("labels", {}), *metadata.get("annotations", {})]
    return [f"{one}: no such label or annotation" for one in given if one not in known]
