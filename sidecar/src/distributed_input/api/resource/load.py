"""Reading a DistributedInput from YAML, and handing it on to the processes that run it."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from distributed_input.api.config import (
    BatchingConfig,
    CodeSource,
    DatasetConfig,
    DeliveryConfig,
    InputConfig,
)
from distributed_input.api.resource.input import GROUP, KIND, DistributedInput
from distributed_input.api.resource.problems import Problem, ResourceError, problems
from distributed_input.api.resource.scalars import quantity_bytes
from distributed_input.api.resource.yaml_lines import Document, YamlError, documents

__all__ = [
    "ResourceError",
    "data_plane_config",
    "input_config",
    "load",
    "load_all",
    "loads",
    "loads_all",
]


def load(path: str | os.PathLike[str]) -> DistributedInput:
    """The one DistributedInput in a YAML file; documents of other kinds are passed over.

    A relative `source.path` is taken from the file's folder and comes back absolute.

    Raises:
        ResourceError: the file cannot be read, holds none or several, or one with mistakes.
    """
    return _only(load_all(path), os.fspath(path))


def loads(text: str, source: str = "<text>") -> DistributedInput:
    """As `load`, from text; `source` names it in errors, and `source.path` stays as it is."""
    return _only(loads_all(text, source), source)


def load_all(path: str | os.PathLike[str]) -> list[DistributedInput]:
    """Every DistributedInput in a YAML file, one at least; see `load`."""
    source = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{source}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ResourceError(f"{source}: is no UTF-8 text, so no YAML") from error
    return _read(text, source, Path(path).parent)


def loads_all(text: str, source: str = "<text>") -> list[DistributedInput]:
    """Every DistributedInput in a YAML text, one at least; see `loads`."""
    return _read(text, source, None)


def input_config(resource: DistributedInput) -> InputConfig:
    """Return what the sidecar needs of a resource. A relative `source.path` becomes absolute."""
    spec, source = resource.spec, resource.spec.dataset.source
    path = os.path.abspath(source.path) if source.path else None
    return InputConfig(
        dataset=DatasetConfig(
            entry_point=spec.dataset.entry_point,
            args=spec.dataset.args,
            source=CodeSource(path, source.config_map),
        ),
        processing_mode=spec.processing_mode,
        num_splits=spec.num_splits,
        partitions=spec.partitions,
        seed=spec.seed,
        epochs=spec.epochs,
        batching=BatchingConfig(spec.batching.global_batch_size, spec.batching.remainder),
        order=spec.order,
        determinism=spec.determinism,
        sidecar=DeliveryConfig(
            spec.sidecar.read_ahead,
            spec.sidecar.timeout_seconds,
            quantity_bytes(spec.sidecar.buffer),
        ),
    )


def data_plane_config(resource: DistributedInput) -> dict[str, Any]:
    """Return `input_config` as JSON: the value of `inputs.<name>` in the sidecar's --config."""
    return input_config(resource).to_json()


def _read(text: str, source: str, folder: Path | None) -> list[DistributedInput]:
    try:
        every = documents(text)
    except YamlError as error:
        raise ResourceError(f"{_place(source, error.line)}: {error}") from None
    ours = [document for document in every if _is_ours(document.value)]
    if not ours:
        raise ResourceError(
            f"{source}: has no DistributedInput: add a document with `kind: {KIND}`"
        )
    found: dict[tuple[str | None, str], DistributedInput] = {}
    wrong: list[str] = []
    for document in ours:
        try:
            resource = DistributedInput.model_validate(document.value, context={"folder": folder})
        except ValidationError as error:
            wrong += [_located(problem, document, source) for problem in problems(error)]
            continue
        name = (resource.metadata.namespace, resource.metadata.name)
        for problem in _among_others(resource, name in found, folder is not None):
            wrong.append(_located(problem, document, source))
        found[name] = resource
    if wrong:
        raise ResourceError(*wrong)
    return list(found.values())


def _among_others(resource: DistributedInput, again: bool, from_file: bool) -> list[Problem]:
    """Mistakes that only show outside the resource itself: in its file, on this machine."""
    found = []
    if again:
        text = f"{resource.metadata.name!r} is there already: give each its own name"
        found.append(Problem(("metadata", "name"), text))
    path = resource.spec.dataset.source.path
    if from_file and path is not None and not os.path.isdir(path):
        text = f"no folder {path}: write the folder of the code, relative to this file"
        found.append(Problem(("spec", "dataset", "source", "path"), text))
    return found


def _only(found: list[DistributedInput], source: str) -> DistributedInput:
    if len(found) > 1:
        names = ", ".join(resource.metadata.name for resource in found)
        raise ResourceError(f"{source}: has {len(found)} DistributedInputs ({names}), not one")
    return found[0]


def _is_ours(value: Any) -> bool:
    """Whether a document is, or was meant to be, a DistributedInput.

    A Job or ConfigMap in the same file is for others to read; a slip in the kind is not.
    """
    if not isinstance(value, dict) or "kind" not in value:
        return True
    group = str(value.get("apiVersion", "")).partition("/")[0]
    kinds = [str(value["kind"]).lower()]
    return group == GROUP or bool(difflib.get_close_matches(KIND.lower(), kinds, cutoff=0.8))


def _located(problem: Problem, document: Document, source: str) -> str:
    return f"{_place(source, document.line(problem.path))}: {problem}"


def _place(source: str, line: int | None) -> str:
    return source if line is None else f"{source}:{line}"
