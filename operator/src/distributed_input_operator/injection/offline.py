"""Injection without a cluster: manifests in, manifests with sidecars out. Pure.

What the webhook reads from the API server, a file must say: the inputs, and what runs the pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import KIND, DistributedInput
from distributed_input.api.resource.parse import parse_all
from distributed_input.api.resource.problems import ResourceError
from distributed_input.api.resource.yaml_lines import YamlError, documents
from distributed_input_operator.injection.injection import asks, injected, warnings
from distributed_input_operator.injection.trainers import Manifest, RefusedError


@dataclass(frozen=True)
class Result:
    """What to apply, and what to say of it."""

    manifests: tuple[Any, ...]
    """In the order of the files; those that do not ask for a sidecar as they were."""
    warnings: tuple[str, ...]


def with_sidecars(files: Mapping[str, str], image: str) -> Result:
    """Inject what asks for a sidecar in some YAML files.

    Args:
        files: their texts by their names. The inputs that pods ask for are among them.
        image: of the sidecar, where no input names one.

    Raises:
        ResourceError: a file is not YAML, or an input in it has mistakes.
        RefusedError: nothing asks, or what asks cannot be served; names file and object.
    """
    inputs: list[DistributedInput] = []
    found: list[tuple[str, Any]] = []
    for name, text in files.items():
        values = _values(name, text)
        found += [(name, value) for value in values]
        if any(isinstance(value, dict) and value.get("kind") == KIND for value in values):
            inputs += parse_all(text, name)
    work = _Work(inputs, image)
    manifests = tuple(work.document(value, name) for name, value in found)
    if not work.done:
        raise RefusedError(
            f"{', '.join(files)}: no pod asks for the sidecar: add to the pod, or to the pod "
            f'template, label {names.INJECT_LABEL}: "true" and annotation '
            f"{names.INPUTS_ANNOTATION}: NAME[,NAME…]"
        )
    return Result(manifests, tuple(work.warnings))


class _Work:
    """One run over some manifests."""

    def __init__(self, inputs: Sequence[DistributedInput], image: str) -> None:
        self._inputs = inputs
        self._image = image
        self.done = 0
        self.warnings: list[str] = []

    def document(self, value: Any, file: str) -> Any:
        """A manifest with its pods injected."""
        if not isinstance(value, dict):
            return value
        if value.get("kind") == "List":
            return {**value, "items": [self.document(one, file) for one in value["items"]]}
        meta = value.get("metadata") or {}
        what = f"{file}: {value.get('kind')} {meta.get('name') or meta.get('generateName', '')}"
        try:
            return self._walk(value, value, what)
        except RefusedError as error:
            raise RefusedError(f"{what}: {error}") from None

    def _walk(self, value: Any, document: Manifest, what: str) -> Any:
        if isinstance(value, list):
            return [self._walk(one, document, what) for one in value]
        if not isinstance(value, dict):
            return value
        if not _is_template(value) or not asks(value):
            return {key: self._walk(one, document, what) for key, one in value.items()}
        self.done += 1
        space = (document.get("metadata") or {}).get("namespace")

        def find(name: str) -> DistributedInput:
            return self._find(name, space)

        self.warnings += [f"{what}: {text}" for text in warnings(value, find)]
        return injected(value, _owners(document), find, self._image)

    def _find(self, name: str, space: str | None) -> DistributedInput:
        for one in self._inputs:
            # Who names no namespace leaves it to kubectl.
            same = one.metadata.namespace == space or None in (one.metadata.namespace, space)
            if one.metadata.name == name and same:
                return self._with_image(one)
        there = ", ".join(one.metadata.name for one in self._inputs) or "none"
        raise RefusedError(
            f"no DistributedInput {name!r} in these files (there are: {there}): add its file with "
            "-f, or correct the name"
        )

    def _with_image(self, one: DistributedInput) -> DistributedInput:
        if not self._image and not one.spec.sidecar.image:
            raise RefusedError(
                f"input {one.metadata.name} names no image of the sidecar: give --image, or set "
                "spec.sidecar.image"
            )
        return one


def _values(name: str, text: str) -> list[Any]:
    try:
        return [document.value for document in documents(text)]
    except YamlError as error:
        place = name if error.line is None else f"{name}:{error.line}"
        raise ResourceError(f"{place}: {error}") from None


def _is_template(value: Mapping[str, Any]) -> bool:
    metadata, spec = value.get("metadata"), value.get("spec")
    return isinstance(metadata, dict) and isinstance(spec, dict) and "containers" in spec


def _owners(document: Manifest) -> dict[str, Manifest]:
    """What runs a pod of the document, by kind."""
    kind = document.get("kind", "")
    if kind == "JobSet":
        raise RefusedError(
            "which trainer a pod of a JobSet is, is known only when it is made: leave it to the "
            "webhook"
        )
    if kind == "CronJob":
        return {"Job": {"metadata": {}, **document["spec"]["jobTemplate"]}}
    return {} if kind == "Pod" else {kind: document}
