"""The section `workers` in one version, from that in the other."""

from __future__ import annotations

import re
from typing import Any

from distributed_input.api.resource.conversion.kept import Json
from distributed_input.api.resource.conversion.template import (
    POD_FIELDS,
    WORKER_FIELDS,
    alpha_fields,
    beta_template,
)

_GPU, _TPU = "nvidia.com/gpu", "google.com/tpu"
_PRODUCTS = {
    "nvidia": (_GPU, "nvidia.com/gpu.product"),
    "gke-nvidia": (_GPU, "cloud.google.com/gke-accelerator"),
    "gke-tpu": (_TPU, "cloud.google.com/gke-tpu-accelerator"),
}
"""Resource, and label of the product, of each type of accelerator in v1alpha1."""
_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
_TOPOLOGIES = re.compile(r"[1-9][0-9]*(x[1-9][0-9]*){1,2}")
_TEMPLATE_FIELDS = frozenset({*POD_FIELDS, *WORKER_FIELDS, "podTemplate", "resources"})
ALPHA_FIELDS = _TEMPLATE_FIELDS | {"accelerator"}
"""Fields of v1alpha1 that are `template` and `accelerator` in v1beta1."""


def beta_workers(workers: Json) -> Json:
    """Return the section of v1beta1."""
    result = {key: value for key, value in workers.items() if key not in _TEMPLATE_FIELDS}
    template = beta_template(workers)
    if template:
        result["template"] = template
    if isinstance(accelerator := workers.get("accelerator"), dict):
        result["accelerator"] = _beta_accelerator(accelerator)
    return result


def alpha_workers(workers: Json) -> Json:
    """Return the section of v1alpha1."""
    result = {
        key: value for key, value in workers.items() if key not in {"template", "accelerator"}
    }
    if isinstance(template := workers.get("template"), dict):
        result |= alpha_fields(template)
    if isinstance(accelerator := workers.get("accelerator"), dict):
        found = _alpha_accelerator(accelerator)
        if found is None:
            return _with_device(result, accelerator)
        result["accelerator"] = found
    return result


def _beta_accelerator(accelerator: Json) -> Json:
    resource, label = _PRODUCTS.get(str(accelerator.get("type")), _PRODUCTS["nvidia"])
    labels = {label: accelerator.get("product"), _TOPOLOGY: accelerator.get("topology")}
    selector = {key: value for key, value in labels.items() if value is not None}
    result = {"resourceName": resource}
    if "count" in accelerator:
        result["count"] = accelerator["count"]
    return {**result, **({"nodeSelector": selector} if selector else {})}


def _alpha_accelerator(accelerator: Json) -> Json | None:
    """Return an accelerator of v1alpha1. None: it has no such type."""
    selector = accelerator.get("nodeSelector") or {}
    count = {"count": accelerator["count"]} if "count" in accelerator else {}
    for kind, (resource, label) in _PRODUCTS.items():
        tpu = kind == "gke-tpu"
        labels = {label, _TOPOLOGY} if tpu else {label}
        fits = set(selector) == labels or (not selector and not tpu)
        if accelerator.get("resourceName") != resource or not fits:
            continue
        product, topology = selector.get(label), selector.get(_TOPOLOGY)
        if product == "" or (tpu and not _TOPOLOGIES.fullmatch(str(topology))):
            continue
        found = {"type": kind, "product": product, **count, "topology": topology}
        return {key: value for key, value in found.items() if value is not None}
    return None


def _with_device(workers: Json, accelerator: Json) -> Json:
    """Return the section with any extended resource, which v1alpha1 has no type for."""
    name = str(accelerator.get("resourceName"))
    device = {name: str(accelerator.get("count", 1))}
    resources = _mapping(workers.get("resources"))
    selector = {
        **_mapping(accelerator.get("nodeSelector")),
        **_mapping(workers.get("nodeSelector")),
    }
    found = workers.get("tolerations")
    toleration = {"key": name, "operator": "Exists", "effect": "NoSchedule"}
    result = {
        **workers,
        "resources": {
            **resources,
            **{kind: _mapping(resources.get(kind)) | device for kind in ("requests", "limits")},
        },
        "tolerations": [*(found if isinstance(found, list) else []), toleration],
    }
    return {**result, **({"nodeSelector": selector} if selector else {})}


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
