"""Problems of the version that the processes use, with the names of fields in the user's file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from distributed_input.api.resource.conversion.template import POD_FIELDS, WORKER_FIELDS
from distributed_input.api.resource.problems import Problem
from distributed_input.api.resource.v1beta1.input import BETA_VERSION
from distributed_input.api.resource.yaml_lines import FieldPath

_ENTRY = ("spec", "dataset", "entryPoint")
_POD = ("spec", "workers", "template", "spec")
_PATHS: dict[FieldPath, FieldPath] = {
    _ENTRY: (*_ENTRY, "function"),
    ("spec", "dataset", "args"): (*_ENTRY, "args"),
    ("spec", "dataset", "source"): (*_ENTRY, "source"),
    ("spec", "operatorClass"): ("spec", "managedBy"),
    **{("spec", "workers", name): (*_POD, name) for name in POD_FIELDS},
    **{("spec", "workers", name): (*_POD, "containers") for name in (*WORKER_FIELDS, "resources")},
    ("spec", "workers", "podTemplate"): ("spec", "workers", "template"),
}
"""Fields of v1alpha1 with another place in v1beta1."""


def is_beta(document: Any) -> bool:
    """Whether a document is a resource of v1beta1."""
    return isinstance(document, dict) and document.get("apiVersion") == BETA_VERSION


def as_written(found: Iterable[Problem], document: Any) -> Iterator[Problem]:
    """Yield problems of v1alpha1 with the fields of the document's version."""
    for one in found:
        yield replace(one, path=_beta_path(one.path)) if is_beta(document) else one


def _beta_path(path: FieldPath) -> FieldPath:
    for length in range(len(path), 0, -1):
        if path[:length] in _PATHS:
            return (*_PATHS[path[:length]], *path[length:])
    return path
