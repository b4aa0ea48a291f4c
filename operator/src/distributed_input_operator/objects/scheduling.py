"""Where worker pods run: accelerators, trainers' nodes, spot nodes; labels and taints of others.

NVIDIA's operator labels nodes with nvidia.com/gpu.product (its value changes under MIG); GKE with
cloud.google.com/gke-accelerator and gke-tpu-accelerator, gke-tpu-topology. Both taint them with the
name of the resource.
"""

from __future__ import annotations

from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.sections.pods import AcceleratorSpec
from distributed_input.api.resource.sections.workers import WorkersSpec
from distributed_input_operator.objects.children import tolerations

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
    """What the container asks for, as requests and as limits: these must be equal."""
    if accelerator is None:
        return {}
    return {TPU if accelerator.type == "gke-tpu" else GPU: str(accelerator.count)}


def scheduling(name: str, workers: WorkersSpec) -> dict[str, Any]:
    """The fields of a worker pod's spec that say where it may run; empty ones left out."""
    selector = {**_accelerator_selector(workers.accelerator), **workers.node_selector}
    fields: dict[str, Any] = {
        "nodeSelector": selector,
        "tolerations": [*_tolerations(workers), *tolerations(workers.tolerations)],
        "affinity": _affinity(name, workers),
        "priorityClassName": workers.priority_class_name,
    }
    return {key: value for key, value in fields.items() if value}


def _accelerator_selector(accelerator: AcceleratorSpec | None) -> dict[str, str]:
    selector: dict[str, str] = {}
    if accelerator and accelerator.product:
        selector[_PRODUCT_LABELS[accelerator.type]] = accelerator.product
    if accelerator and accelerator.topology:
        selector["cloud.google.com/gke-tpu-topology"] = accelerator.topology
    return selector


def _tolerations(workers: WorkersSpec) -> list[dict[str, str]]:
    tainted = list(accelerator_resources(workers.accelerator))
    if workers.placement == "near-trainers":
        tainted = [GPU, TPU]  # whichever the trainers' nodes have
    found = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in tainted]
    if workers.spot:
        found += [
            {"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            for key, value in _SPOT_LABELS
        ]
    return found


def _affinity(name: str, workers: WorkersSpec) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if workers.placement == "near-trainers":
        # Preferred: workers start before trainers do, and a full node is no reason to wait.
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
