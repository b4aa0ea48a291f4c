"""Access to the labels, annotations and environment variables of a trainer pod."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""
EnvValue = dict[str, Any]
"""An environment variable without its name: {"value": …} or {"valueFrom": …}."""

INDEX_REMEDY = (
    f"{names.CONSUMER_INDEX_ANNOTATION}: metadata.labels['KEY'], where KEY is the label (or "
    "metadata.annotations['KEY'], the annotation) with the number of each pod"
)
"""How the pods of one template get their indices from what controls them."""
RANK_REMEDY = (
    "set the annotations "
    f'{names.CONSUMERS_ANNOTATION}: "N" and, if N > 1, {INDEX_REMEDY}. Or use TF_CONFIG, or a kind '
    "that is known: Indexed Job, JobSet, StatefulSet, TrainJob, PyTorchJob, MPIJob, RayJob, "
    "RayCluster, LeaderWorkerSet or Volcano Job"
)

MAX_DIGITS = 9
"""Of a number in the metadata of a pod."""
_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class RefusedError(ValueError):
    """A pod cannot get the sidecar that it requests. The message says what to change."""


@dataclass(frozen=True)
class TrainerRank:
    """The index of a trainer, the number of trainers, and the number of its processes that read."""

    index: EnvValue
    """A number from 0, or a reference to the field of the pod that has it."""
    count: int | None
    """None if it is unknown."""
    source: str
    """Where index and count come from, for messages."""
    ranks: int = 1
    """Processes of the trainer that read. Each is a consumer of its own."""
    span: int = 1
    """Trainers of each rank, which read the same rows. Each is a consumer of its own job."""

    @property
    def consumers(self) -> int:
        """The number of consumers of a job. 1 trainer if their number is unknown."""
        return (self.count or 1) * self.ranks // self.span

    @property
    def ranks_per_trainer(self) -> str:
        """The value of the annotation for these ranks."""
        return f"1/{self.span}" if self.span > 1 else str(self.ranks)


def requested_inputs(pod: Manifest) -> tuple[str, ...]:
    """Return the names of the inputs that the pod requests, without duplicates, in its order.

    Raises:
        RefusedError: the annotation is missing or has no name.
    """
    text = annotations_of(pod).get(names.INPUTS_ANNOTATION, "")
    found = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not found:
        raise RefusedError(
            f"label {names.INJECT_LABEL} requests the sidecar, but no input is named: add "
            f"annotation {names.INPUTS_ANNOTATION}: NAME[,NAME…]"
        )
    return found


def labels_of(manifest: Manifest) -> Mapping[str, str]:
    """Return the labels of an object."""
    return manifest["metadata"].get("labels") or {}


def annotations_of(manifest: Manifest) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return manifest["metadata"].get("annotations") or {}


def controller(manifest: Manifest) -> dict[str, Any] | None:
    """Return the owner reference of an object's controller, or None if it has none."""
    meta = manifest.get("metadata") or {}  # Only a manifest in a file can lack it.
    owners = meta.get("ownerReferences") or ()
    return next((dict(one) for one in owners if one.get("controller")), None)


def env(pod: Manifest, name: str) -> EnvValue | None:
    """Return a variable of the first container that has it, or None."""
    for container in pod["spec"].get("containers") or ():
        # Kubernetes uses the last value of a repeated variable.
        for one in reversed(container.get("env") or ()):
            if one["name"] == name and "valueFrom" in one:
                return {"valueFrom": one["valueFrom"]}
            if one["name"] == name:
                return {"value": one.get("value", "")}  # the API server omits an empty value
    return None


def env_text(pod: Manifest, name: str) -> str:
    """Return the literal value of a variable, or "" if it has none."""
    return str((env(pod, name) or {}).get("value", ""))


def annotated_number(pod: Manifest, annotation: str, minimum: int) -> int | None:
    """Return the integer in an annotation, or None without the annotation.

    Raises:
        RefusedError: the annotation is not an integer of at least `minimum`.
    """
    text = annotations_of(pod).get(annotation)
    if text is None:
        return None
    value = parse_number(text, f"annotation {annotation}")
    if value < minimum:
        raise RefusedError(
            f"annotation {annotation}: {text!r} is less than {minimum}: use an integer of at least "
            f"{minimum}"
        )
    return value


def annotated_index(pod: Manifest) -> EnvValue | None:
    """Return the index in the pod's annotation, or None without the annotation.

    The annotation has the number, or the name of the field that has it, which works in the template
    of several pods. The result refers to this field only for a template. A pod has it already.

    Raises:
        RefusedError: the annotation is neither, or the pod has no such field.
    """
    text = annotations_of(pod).get(names.CONSUMER_INDEX_ANNOTATION, "").strip()
    field = _FIELD.fullmatch(text)
    if field is None:
        index = annotated_number(pod, names.CONSUMER_INDEX_ANNOTATION, minimum=0)
        return None if index is None else literal(index)
    if controller(pod) is None:
        return metadata_reference(field[1], field[2])
    return literal(parse_number(field_text(pod, text) or "", f"{text} of the pod"))


def field_text(pod: Manifest, field: str) -> str | None:
    """Return the value of a label or an annotation, or None if the pod has none.

    `field` is the path of a `fieldRef`. All other fields have the value None.
    """
    found = _FIELD.fullmatch(field)
    parts = {"labels": labels_of, "annotations": annotations_of}
    return parts[found[1]](pod).get(found[2]) if found else None


def parse_number(text: str, name: str) -> int:
    """Return a non-negative integer. Raises RefusedError, with `name` in its message."""
    if not (text.strip().isascii() and text.strip().isdecimal()):
        raise RefusedError(
            f"{name}: {text!r} is not a non-negative integer: use a number such as 2"
        )
    if len(text.strip()) > MAX_DIGITS:
        raise RefusedError(f"{name}: the number has more than {MAX_DIGITS} digits")
    return int(text)


def literal(value: int) -> EnvValue:
    """Return an environment variable with a number as its value."""
    return {"value": str(value)}


def metadata_reference(part: str, key: str) -> EnvValue:
    """Return an environment variable that Kubernetes sets from the pod's metadata.

    `part` is labels or annotations.
    """
    field = {"apiVersion": "v1", "fieldPath": f"metadata.{part}['{key}']"}
    return {"valueFrom": {"fieldRef": field}}
