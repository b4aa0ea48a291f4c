"""The nodes that worker pods run on: accelerators, trainers' nodes and spot nodes.

Nodes with accelerators have a taint with the name of the resource.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.sections.workers import AcceleratorSpec, WorkersSpec
from distributed_input_operator.objects.children import node_fields

HOSTNAME = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
TPU = "google.com/tpu"
_SPOT_LABELS = (
    ("cloud.google.com/gke-spot", "true"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("karpenter.sh/capacity-type", "spot"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)


def accelerator_resources(accelerator: AcceleratorSpec | None) -> dict[str, str]:
    """Return the number of accelerators by resource name, for both requests and limits."""
    if accelerator is None:
        return {}
    return {accelerator.resource_name: str(accelerator.count)}


def scheduling_fields(name: str, workers: WorkersSpec) -> dict[str, Any]:
    """Return the non-empty fields of a worker pod's spec that restrict its nodes."""
    accelerator = workers.accelerator.node_selector if workers.accelerator else {}
    selector = {**accelerator, **workers.pod.node_selector}
    affinity = _affinity(name, workers)
    return {
        **node_fields(
            selector,
            workers.pod.tolerations,
            workers.pod.priority_class_name,
            _tolerations(workers),
        ),
        **({"affinity": affinity} if affinity else {}),
    }


def _tolerations(workers: WorkersSpec) -> list[dict[str, str]]:
    taints = list(accelerator_resources(workers.accelerator))
    if workers.placement == "NearTrainers":
        taints = [GPU, TPU]  # the trainers' nodes may have either
    result = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in taints]
    if workers.spot:
        result += [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            for key, value in _SPOT_LABELS
        ]
    return result


def _affinity(name: str, workers: WorkersSpec) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if workers.placement == "NearTrainers":
        # Not required: workers may start before trainers, or the trainers' nodes may be full.
        term = {"weight": 100, "podAffinityTerm": _pods({names.reads_label(name): "true"})}
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    if workers.placement == "Dedicated":
        term = _pods({names.INJECT_LABEL: "true"})
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if workers.spot:
        terms = [
            {
                "weight": 50,
                "preference": {
                    "matchExpressions": [{"key": key, "operator": "In", "values": [value]}]
                },
            }
            for key, value in _SPOT_LABELS
        ]
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": terms}
    return affinity


def _pods(labels: dict[str, str]) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME}
