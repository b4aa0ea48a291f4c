"""Workers run on nodes with their accelerators. If no node fits, the status has the reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from distributed_input.api.names import COMPONENT_LABEL, INPUT_LABEL, WORKER
from testing.cluster.fixtures import skip_or_fail
from testing.cluster.kwok import FakeNodes
from testing.operator.processes import eventually

_GPU, _TPU = "nvidia.com/gpu", "google.com/tpu"
_TOPOLOGY = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
    "cloud.google.com/gke-tpu-topology": "2x4",
}
_NODES: dict[str, tuple[dict[str, str], str, int]] = {
    "l4": ({"nvidia.com/gpu.product": "NVIDIA-L4"}, _GPU, 1),
    "h100": ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, _GPU, 2),
    "gke-t4": ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, _GPU, 1),
    "tpu": (_TOPOLOGY, _TPU, 8),
}
"""Of each kind of nodes: labels, resource, and the accelerators of a worker."""


@pytest.fixture(scope="module")
def nodes(node_cluster) -> Iterator[None]:
    """Add a fake node of each kind, with eight accelerators and the usual taint."""
    if node_cluster.plane is None:
        skip_or_fail("E2E_KUBECONFIG is set: this test adds fake nodes to the cluster")
    with FakeNodes(node_cluster.plane) as created:
        for name, (labels, resource, _) in _NODES.items():
            taint = {"key": resource, "value": "present", "effect": "NoSchedule"}
            created.add(f"fake-{name}", labels, {resource: "8"}, [taint])
        yield


def _input(name: str, **workers: Any) -> dict[str, Any]:
    return {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": name},
        "spec": {
            "dataset": {"type": "EntryPoint", "entryPoint": {"function": "any:rows"}},
            "workers": {"replicas": 1, **workers},
        },
    }


@pytest.mark.parametrize("kind", _NODES)
@pytest.mark.usefixtures("nodes")
def test_workers_run_on_the_nodes_with_their_accelerator(kubectl, kind):
    labels, resource, count = _NODES[kind]
    accelerator = {"resourceName": resource, "nodeSelector": labels, "count": count}
    kubectl.apply(_input(kind, accelerator=accelerator))

    def node_names() -> set[str]:
        pods = kubectl.list("pod", f"{INPUT_LABEL}={kind},{COMPONENT_LABEL}={WORKER}")
        return {pod["spec"].get("nodeName", "") for pod in pods}

    eventually(lambda: node_names() == {f"fake-{kind}"})
    (pod,) = kubectl.list("pod", f"{INPUT_LABEL}={kind},{COMPONENT_LABEL}={WORKER}")
    assert pod["spec"]["containers"][0]["resources"]["limits"][resource] == str(count)
    kubectl("delete", "dinput", kind)


@pytest.mark.usefixtures("nodes")
def test_if_no_node_fits_the_condition_has_the_schedulers_message(kubectl, measured):
    started = time.monotonic()
    nowhere = {"resourceName": _GPU, "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-B300"}}
    kubectl.apply(_input("nowhere", accelerator=nowhere))
    kubectl.wait("dinput/nowhere", "Unschedulable", 30)
    measured(f"a worker that fits no node: condition after {time.monotonic() - started:.1f} s")
    conditions = kubectl.get("dinput", "nowhere")["status"]["conditions"]
    (message,) = (one["message"] for one in conditions if one["type"] == "Unschedulable")
    assert "nodes are available" in message
    assert "didn't match Pod's node affinity/selector" in message
    kubectl("delete", "dinput", "nowhere")
