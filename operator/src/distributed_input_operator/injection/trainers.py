"""What a trainer's pod says of itself, and what becomes known of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names

Manifest = Mapping[str, Any]
"""A Kubernetes object as JSON."""
EnvValue = dict[str, Any]
"""An environment variable without its name: {"value": …} or {"valueFrom": …}."""

REMEDY = (
    "use an Indexed Job, a JobSet or a StatefulSet, set TF_CONFIG, or state it: annotations "
    f'{names.CONSUMERS_ANNOTATION}: "N" and, where N > 1, {names.CONSUMER_INDEX_ANNOTATION}: "I"'
)


class RefusedError(ValueError):
    """A pod that cannot get the sidecar it asks for; the message names what to change."""


@dataclass(frozen=True)
class Consumer:
    """Trainer `index` of `count`."""

    index: EnvValue
    """A number, or where the pod finds it."""
    count: int | None
    """None: nothing has told yet."""
    known_by: str
    """Who told, for people."""


def wanted_inputs(pod: Manifest) -> tuple[str, ...]:
    """The inputs that the pod asks for, by name, each once, in its order. Raises RefusedError."""
    text = annotations_of(pod).get(names.INPUTS_ANNOTATION, "")
    found = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not found:
        raise RefusedError(
            f"label {names.INJECT_LABEL} asks for the sidecar, and nothing says of which inputs: "
            f"add annotation {names.INPUTS_ANNOTATION}: NAME[,NAME…]"
        )
    return found


def labels_of(manifest: Manifest) -> Mapping[str, str]:
    """Its labels."""
    return manifest["metadata"].get("labels") or {}


def annotations_of(manifest: Manifest) -> Mapping[str, str]:
    """Its annotations."""
    return manifest["metadata"].get("annotations") or {}


def controller(manifest: Manifest) -> dict[str, Any] | None:
    """The owner reference of what made it; None where a person did."""
    owners = manifest["metadata"].get("ownerReferences") or ()
    return next((dict(one) for one in owners if one.get("controller")), None)


def env(pod: Manifest, name: str) -> EnvValue | None:
    """A variable of the first container that has it."""
    for container in pod["spec"].get("containers") or ():
        for one in container.get("env") or ():
            if one["name"] == name and "valueFrom" in one:
                return {"valueFrom": one["valueFrom"]}
            if one["name"] == name:
                return {"value": one.get("value", "")}  # the API server leaves an empty one out
    return None


def env_text(pod: Manifest, name: str) -> str:
    """A variable's plain value; empty where it has none."""
    return str((env(pod, name) or {}).get("value", ""))


def stated(pod: Manifest, annotation: str, least: int) -> int | None:
    """The number in an annotation; None where there is none. Raises RefusedError."""
    text = annotations_of(pod).get(annotation)
    if text is None:
        return None
    found = number(text, f"annotation {annotation}")
    if found < least:
        raise RefusedError(f"annotation {annotation}: {text!r} is less than {least}")
    return found


def number(text: str, what: str) -> int:
    """A whole number from 0. Raises RefusedError, naming `what`."""
    if not (text.strip().isascii() and text.strip().isdecimal()):
        raise RefusedError(f"{what}: {text!r} is not a whole number")
    return int(text)


def literal(value: int) -> EnvValue:
    """A number as a variable's value."""
    return {"value": str(value)}


def of_metadata(where: str, key: str) -> EnvValue:
    """A label or annotation as a variable's value, read when the container starts."""
    field = {"apiVersion": "v1", "fieldPath": f"metadata.{where}['{key}']"}
    return {"valueFrom": {"fieldRef": field}}
