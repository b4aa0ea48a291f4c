"""The nodes that worker pods run on: accelerators, trainers' nodes and spot nodes.

It uses labels and taints that others set. NVIDIA's operator labels nodes with
nvidia.com/gpu.product, whose value changes with MIG. GKE labels nodes with
cloud.google.com/gke-accelerator, gke-tpu-accelerator and gke-tpu-topology. Both taint these nodes
with the name of the resource.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.sections.pods import AcceleratorSpec
from distributed_input.api.resource.sections.workers import WorkersSpec
from distributed_input_operator.objects.children import node_fields
from distributed_input_operator.objects.snapshot import Settings

HOSTNAME = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"
TPU = "google.com/tpu"
_PRODUCT_LABELS = {
    "nvidia": "nvidia.com/gpu.product",
    "gke-nvidia": "cloud.google.com/gke-accelerator",
    "gke-tpu": "cloud.google.com/gke-tpu-accelerator",
}
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
    return {TPU if accelerator.type == "gke-tpu" else GPU: str(accelerator.count)}


def scheduling_fields(name: str, workers: WorkersSpec, settings: Settings) -> dict[str, Any]:
    """Return the non-empty fields of a worker pod's spec that restrict its nodes."""
    selector = {**_accelerator_selector(workers.accelerator), **workers.node_selector}
    affinity = _affinity(name, workers)
    return {
        **node_fields(
            names.WORKER,
            settings,
            selector,
            workers.tolerations,
            workers.priority_class_name,
            _tolerations(workers),
        ),
        **({"affinity": affinity} if affinity else {}),
    }


def _accelerator_selector(accelerator: AcceleratorSpec | None) -> dict[str, str]:
    selector: dict[str, str] = {}
    if accelerator and accelerator.product:
        selector[_PRODUCT_LABELS[accelerator.type]] = accelerator.product
    if accelerator and accelerator.topology:
        selector["cloud.google.com/gke-tpu-topology"] = accelerator.topology
    return selector


def _tolerations(workers: WorkersSpec) -> list[dict[str, str]]:
    taints = list(accelerator_resources(workers.accelerator))
    if workers.placement == "near-trainers":
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
    if workers.placement == "near-trainers":
        # Not required: workers may start before trainers, or the trainers' nodes may be full.
        term = {"weight": 100, "podAffinityTerm": _pods({names.reads_label(name): "true"})}
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    if workers.placement == "dedicated":
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
