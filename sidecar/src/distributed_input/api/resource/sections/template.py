"""The pod template of workers, as in Kubernetes: fields with a type here, and any other field."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator

from distributed_input.api import names
from distributed_input.api.resource.base import Section, list_map
from distributed_input.api.resource.scalars import Anything, Image, ObjectName, Quantity, problem

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


_OPEN = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
"""Further fields are those of Kubernetes, and the API server checks them with the pod."""


class ContainerResources(ResourceRequirements):
    """CPU, memory, devices and other resources of a container."""

    model_config = _OPEN

    claims: Objects = Field(default=[], examples=[[{"name": "gpu"}]])
    """Claims of devices, by their names in the pod's resourceClaims. Default: none."""


class TemplateContainer(Section):
    """A container. `worker` is the one that runs the pipeline; others run beside it."""

    model_config = _OPEN

    name: Annotated[str, Field(min_length=1, max_length=63)] = Field(examples=["worker"])
    """Name of the container. worker: the one that runs the pipeline. Required."""
    image: Image | None = None
    """Image with TensorFlow, distributed-input and the dataset's code. Default: the operator's
    image for workers."""
    resources: ContainerResources = ContainerResources()
    """CPU and memory. Default: requests of 250m CPU and 512Mi memory, no limits."""
    env: Variables = Field(default=[])
    """Environment variables. Use valueFrom for secrets. Default: none."""
    volume_mounts: Objects = Field(default=[])
    """Volume mounts. Default: none."""


class TemplatePodSpec(Section):
    """The spec of worker pods, as in a pod template."""

    model_config = _OPEN

    containers: list[TemplateContainer] = Field(default=[], json_schema_extra=list_map("name"))
    """Containers, which merge by name with those of the operator. Default: none."""
    volumes: Volumes = Field(default=[])
    """Volumes, in addition to those of the operator. Default: none."""
    node_selector: dict[str, str] = Field(default={})
    """Node selector. Default: none."""
    tolerations: Objects = Field(default=[])
    """Tolerations, in addition to those of the operator. Default: none."""
    service_account_name: ObjectName | None = None
    """ServiceAccount, for access to storage by workload identity. Default: a ServiceAccount without
    permissions."""
    priority_class_name: ObjectName | None = None
    """PriorityClass. The cluster autoscaler adds no node for pods with a priority below -10.
    Default: the cluster's default."""
    termination_grace_period_seconds: int = Field(default=60, ge=5, le=3600)
    """Seconds that a stopping worker may use to finish its splits. Then other workers continue
    them. Default: 60."""

    @model_validator(mode="after")
    def _check_names(self) -> TemplatePodSpec:
        names = [one.name for one in self.containers]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise problem(f"two have the name {name!r}: merge them", "containers")
        return self


class WorkerTemplate(Section):
    """A pod template that is merged over the workers' pod template."""

    metadata: Anything = Field(default={})
    """Labels and annotations of worker pods. Default: none."""
    spec: TemplatePodSpec = TemplatePodSpec()
    """Spec of worker pods, as in a pod template."""

    @property
    def worker(self) -> TemplateContainer:
        """The container that runs the pipeline. Without one in the template, it has no fields."""
        found = (one for one in self.spec.containers if one.name == names.WORKER)
        return next(found, TemplateContainer(name=names.WORKER))

    @property
    def further_fields(self) -> dict[str, Any]:
        """The template without the typed fields of the pod and of its container `worker`.

        It is merged over the generated template, which has the typed fields.
        """
        containers = [
            _further(one) if one.name == names.WORKER else _as_written(one)
            for one in self.spec.containers
        ]
        pod = {**(self.spec.model_extra or {}), "containers": containers}
        return {"metadata": self.metadata, "spec": pod}


def _further(worker: TemplateContainer) -> dict[str, Any]:
    resources = dict(worker.resources.model_extra or {})
    if worker.resources.claims:
        resources["claims"] = worker.resources.claims
    further = {"name": worker.name, **(worker.model_extra or {})}
    return {**further, "resources": resources} if resources else further


def _as_written(one: TemplateContainer) -> dict[str, Any]:
    return one.model_dump(by_alias=True, exclude_unset=True)
