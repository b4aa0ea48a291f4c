"""Injection of sidecars into manifests, without a cluster.

The webhook reads inputs and owners from the API server. Here, both must be in the manifests.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from distributed_input.api import names
from distributed_input.api.resource.input import KIND, DistributedInput
from distributed_input.api.resource.parse import parse_all
from distributed_input.api.resource.problems import ResourceError
from distributed_input.api.resource.yaml_lines import YamlError, documents
from distributed_input_operator.injection.pod import (
    host_network_warnings,
    inject,
    requests_sidecar,
)
from distributed_input_operator.injection.trainer_pod import Manifest, RefusedError
from distributed_input_operator.objects.snapshot import Settings


@dataclass(frozen=True)
class InjectedManifests:
    """The result of an injection into files."""

    manifests: tuple[Any, ...]
    """All documents in the order of the files. Those without a pod to inject are unchanged."""
    warnings: tuple[str, ...]
    """Possible problems, each with file and object."""


def inject_files(files: Mapping[str, str], settings: Settings) -> InjectedManifests:
    """Inject the sidecar into all pods and pod templates that request it.

    An empty default image in the settings is an error if it is needed.

    Raises:
        ResourceError: a file is not YAML, or has an invalid input.
        RefusedError: no pod requests the sidecar, or injection is not possible. The message has
            file and object.
    """
    inputs: list[DistributedInput] = []
    found: list[tuple[str, Any]] = []
    for file, text in files.items():
        values = _values(file, text)
        found += [(file, value) for value in values]
        if any(isinstance(value, dict) and value.get("kind") == KIND for value in values):
            inputs += parse_all(text, file)
    warnings: list[list[str]] = []
    manifests = [_inject(value, file, inputs, settings, warnings) for file, value in found]
    if not warnings:
        raise RefusedError(
            f"{', '.join(files)}: no pod requests the sidecar: add label "
            f'{names.INJECT_LABEL}: "true" and annotation {names.INPUTS_ANNOTATION}: NAME[,NAME…] '
            "to the pod or pod template"
        )
    return InjectedManifests(tuple(manifests), tuple(itertools.chain.from_iterable(warnings)))


def _inject(
    value: Any,
    file: str,
    inputs: Sequence[DistributedInput],
    settings: Settings,
    warnings: list[list[str]],
) -> Any:
    """Inject the sidecar into the pods of an object, or of all objects of a List.

    Add to `warnings` those of each pod and pod template that gets the sidecar.

    Raises:
        RefusedError: injection is not possible. The message has file and object.
    """
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "List" and value.get("items"):
        items = [_inject(one, file, inputs, settings, warnings) for one in value["items"]]
        return {**value, "items": items}
    meta = value.get("metadata") or {}
    title = f"{file}: {value.get('kind')} {meta.get('name') or meta.get('generateName', '')}"

    def find(name: str) -> DistributedInput:
        return _find(name, meta.get("namespace"), inputs, settings)

    def injected(one: Any) -> Any:
        """Return a value with the sidecar in all pods and pod templates that request it."""
        if _is_template(one):
            warnings.append([f"{title}: {text}" for text in host_network_warnings(one, find)])
            return inject(one, _owners(value), find, settings)
        if isinstance(one, list):
            return [injected(each) for each in one]
        if isinstance(one, dict):
            return {key: injected(each) for key, each in one.items()}
        return one

    try:
        return injected(value)
    except RefusedError as error:
        raise RefusedError(f"{title}: {error}") from None


def _is_template(value: Any) -> bool:
    """Whether a value is a pod or a pod template that requests the sidecar."""
    if not isinstance(value, dict):
        return False
    metadata, spec = value.get("metadata"), value.get("spec")
    is_pod = isinstance(metadata, dict) and isinstance(spec, dict) and "containers" in spec
    return is_pod and requests_sidecar(value)


def _find(
    name: str, namespace: str | None, inputs: Sequence[DistributedInput], settings: Settings
) -> DistributedInput:
    for one in inputs:
        # An object without namespace may go to any namespace: kubectl decides.
        fits = one.metadata.namespace == namespace or None in (one.metadata.namespace, namespace)
        if one.metadata.name != name or not fits:
            continue
        if not settings.sidecar_image and not one.spec.sidecar.image:
            raise RefusedError(
                f"input {name} has no image of the sidecar: set --image, or spec.sidecar.image"
            )
        if one.spec.workers.local and not (
            settings.worker_image or one.spec.workers.container.image
        ):
            raise RefusedError(
                f"input {name} has no image of its worker beside the trainer: set --worker-image, "
                "or the image of the container worker in spec.workers.template"
            )
        return one
    existing = ", ".join(one.metadata.name for one in inputs) or "none"
    raise RefusedError(
        f"no DistributedInput {name!r} in these files (found: {existing}): add its file with -f, "
        "or correct the name"
    )


def _values(file: str, text: str) -> list[Any]:
    try:
        return [document.value for document in documents(text)]
    except YamlError as error:
        place = file if error.line is None else f"{file}:{error.line}"
        raise ResourceError(f"{place}: {error}") from None


def _owners(manifest: Manifest) -> list[Manifest]:
    """Return what controls the pods of an object."""
    if (manifest.get("apiVersion"), manifest.get("kind")) == ("batch/v1", "CronJob"):
        meta, of = manifest.get("metadata") or {}, manifest["spec"]["jobTemplate"]
        named = {key: meta[key] for key in ("name", "namespace") if key in meta}
        job = {"apiVersion": "batch/v1", "kind": "Job"}
        return [{**job, **of, "metadata": {**(of.get("metadata") or {}), **named}}]
    return [] if manifest.get("kind") == "Pod" else [manifest]


# Text that is a string in every version of YAML. All other text is quoted.
_PLAIN = re.compile(r"[A-Za-z_/$][A-Za-z0-9_./$()=-]*([:,@][A-Za-z0-9_./$()=-]+)*")
_RESERVED = frozenset("y n yes no on off true false null".split())
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")  # a block would not keep them
_NO_WRAP = 1 << 20


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper with other rules for quotes, and without anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    style: str | None = "'" if '"' in data and data.isprintable() else '"'
    if "\n" in data and not _OTHER_BREAKS.search(data):
        style = "|"
    if _PLAIN.fullmatch(data) and data.lower() not in _RESERVED:
        style = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(values: Iterable[Any]) -> str:
    """Return JSON values as YAML documents. Keys keep their order."""
    text: str = yaml.dump_all(
        values,
        Dumper=_Dumper,
        sort_keys=False,
        explicit_start=True,
        allow_unicode=True,
        width=_NO_WRAP,
    )
    return text
