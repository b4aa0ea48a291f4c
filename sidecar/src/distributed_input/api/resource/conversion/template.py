"""The pod template of v1beta1, from the fields of v1alpha1 that it replaces, and back.

The worker's container has `image`, `env`, `volumeMounts` and `resources`; the pod has the other
fields. The rest is `podTemplate` of v1alpha1, which is merged over the generated template.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.conversion.kept import Json
from distributed_input.api.resource.templates.merge import merge
from distributed_input.api.resource.v1beta1.workers import (
    ContainerResources,
    TemplateContainer,
    TemplatePodSpec,
    fits,
)

POD_FIELDS = (
    "serviceAccountName",
    "priorityClassName",
    "nodeSelector",
    "tolerations",
    "volumes",
    "terminationGracePeriodSeconds",
)
WORKER_FIELDS = ("image", "env", "volumeMounts")
_RESOURCES = ("requests", "limits")


def beta_template(workers: Json) -> Json:
    """Return the pod template of a section of v1alpha1. Empty: it has none."""
    own: Json = {key: workers[key] for key in WORKER_FIELDS if key in workers}
    if "resources" in workers:
        own["resources"] = workers["resources"]
    spec: Json = {key: workers[key] for key in POD_FIELDS if key in workers}
    if own:
        spec["containers"] = [{"name": names.WORKER, **own}]
    template = workers.get("podTemplate")
    template = template if isinstance(template, dict) else {}
    if isinstance(template.get("spec"), dict):
        spec = _merged_pod(spec, template["spec"])
    result: Json = {}
    if isinstance(template.get("metadata"), dict):
        result["metadata"] = template["metadata"]
    return {**result, "spec": spec} if spec else result


def _merged_pod(spec: Json, override: Json) -> Json:
    result = dict(spec)
    for key, value in override.items():
        if key == "containers":
            result |= _merged_containers(spec.get(key, []), value)
        elif key not in POD_FIELDS:
            result[key] = value
        elif fits(TemplatePodSpec, key, value):
            result[key] = merge(spec.get(key), value, key, null_removes=False)
    return result


def _merged_containers(containers: list[Json], override: Any) -> Json:
    if not _named(override):
        return {}
    own = {one["name"]: one for one in containers}
    # The order of the override, so that the conversion back gives the same one.
    found = [
        merge(own.pop(one["name"], {}), _typed(one), "containers", null_removes=False)
        for one in override
    ]
    # The conversion back makes no container of a worker's name alone.
    containers = [one for one in (*own.values(), *found) if one != {"name": names.WORKER}]
    return {"containers": containers} if containers else {}


def _named(value: Any) -> bool:
    """Whether a value is a list of containers, each with a name of its own."""
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        return False
    found = [one.get("name") for one in value]
    valid = all(fits(TemplateContainer, "name", one) for one in found)
    return valid and len(set(found)) == len(found)


def _typed(container: Json) -> Json:
    """Return a container without fields that have another type in v1beta1."""
    result = {}
    for key, value in container.items():
        if key == "resources" and isinstance(value, dict):
            kinds = (*_RESOURCES, "claims")
            value = {
                kind: one
                for kind, one in value.items()
                if kind not in kinds or fits(ContainerResources, kind, one)
            }
        if key not in (*WORKER_FIELDS, "resources") or fits(TemplateContainer, key, value):
            result[key] = value
    return result


def alpha_fields(template: Json) -> Json:
    """Return the fields of v1alpha1 for a pod template."""
    spec = template.get("spec")
    if not isinstance(spec, dict):
        rest = {key: value for key, value in template.items() if key != "spec"}
        return {"podTemplate": rest} if rest else {}
    result = {key: spec[key] for key in POD_FIELDS if key in spec}
    remaining = {
        key: value for key, value in spec.items() if key not in (*POD_FIELDS, "containers")
    }
    others = []
    for container in spec.get("containers") or ():
        if container.get("name") != names.WORKER:
            others.append(container)
            continue
        fields, rest = _divided(container)
        result |= fields
        if set(rest) - {"name"}:
            others.append(rest)
    if others:
        remaining["containers"] = others
    pod = {key: value for key, value in template.items() if key != "spec"}
    if remaining:
        pod["spec"] = remaining
    return {**result, **({"podTemplate": pod} if pod else {})}


def _divided(container: Json) -> tuple[Json, Json]:
    """Return the fields of v1alpha1 of the worker's container, and the rest of it."""
    fields = {key: container[key] for key in WORKER_FIELDS if key in container}
    rest = {key: value for key, value in container.items() if key not in WORKER_FIELDS}
    resources = rest.pop("resources", None)
    if isinstance(resources, dict):
        fields["resources"] = {key: resources[key] for key in _RESOURCES if key in resources}
        if more := {key: value for key, value in resources.items() if key not in _RESOURCES}:
            rest["resources"] = more
    return fields, rest
