"""Settings of pods that several sections share: resources, variables and volumes."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

from distributed_input.api.resource.base import Section
from distributed_input.api.resource.scalars import Quantity, problem

_OBJECTS = WithJsonSchema(
    {
        "type": "array",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
)
Objects = Annotated[list[dict[str, Any]], _OBJECTS]
"""A list of objects from a pod's spec. The API server checks their content with the pod."""


def _check_variable(variable: dict[str, Any]) -> dict[str, Any]:
    value = variable.get("value")
    if value is not None and not isinstance(value, str):
        raise problem(f"{json.dumps(value)} is not a text: add quotes", "value")
    return variable


Variables = Annotated[list[Annotated[dict[str, Any], AfterValidator(_check_variable)]], _OBJECTS]
"""Environment variables of a container. The API server refuses a pod with a value such as `3`."""

_VOLUMES = {
    "persistentVolumeClaim": "claimName",
    "configMap": "name",
    "secret": "secretName",
    "hostPath": "path",
}
"""Kinds of volumes, and the field that names what they read."""


def _check_volume(volume: dict[str, Any]) -> dict[str, Any]:
    for kind, value in volume.items():
        if kind == "name" or isinstance(value, dict):
            continue
        field = _VOLUMES.get(kind)
        fix = f"write {{{field}: {value}}}" if field else "write its fields, or {} for the defaults"
        raise problem(f"{json.dumps(value)} is not a mapping: {fix}", kind)
    return volume


Volumes = Annotated[list[Annotated[dict[str, Any], AfterValidator(_check_volume)]], _OBJECTS]
"""Volumes of a pod. The API server refuses a pod with `persistentVolumeClaim: digits`."""


class ResourceRequirements(Section):
    """CPU, memory and other resources of a container."""

    requests: dict[str, Quantity] = Field(default={}, examples=[{"cpu": "4", "memory": "8Gi"}])
    """Resources that the scheduler reserves on the node."""
    limits: dict[str, Quantity] = Field(default={}, examples=[{"memory": "8Gi"}])
    """Maximum resources that the container can use."""
