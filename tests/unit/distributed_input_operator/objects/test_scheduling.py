"""The nodes that workers run on: labels, resources and taints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.distributed_input_operator.objects.builders import pod_spec
from tests.unit.distributed_input_operator.snapshots import template

LOST_NODE = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]


def worker_pod(**workers: Any) -> Any:
    return pod_spec("worker", workers=workers)


@pytest.mark.parametrize(
    ("accelerator", "selector", "resource"),
    [
        (
            {
                "resourceName": "nvidia.com/gpu",
                "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"},
            },
            {"nvidia.com/gpu.product": "NVIDIA-L4"},
            {"nvidia.com/gpu": "1"},
        ),
        ({"resourceName": "amd.com/gpu", "count": 2}, {}, {"amd.com/gpu": "2"}),
    ],
)
def test_accelerators_set_node_selector_resources_and_toleration(accelerator, selector, resource):
    spec = worker_pod(accelerator=accelerator)
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux", **selector}
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == resource
    assert container["resources"]["requests"].items() >= resource.items()
    taint = {"key": next(iter(resource)), "operator": "Exists", "effect": "NoSchedule"}
    assert spec["tolerations"] == [taint, *LOST_NODE]


def test_near_trainers_prefers_the_trainers_nodes_and_tolerates_their_taints():
    spec = worker_pod(placement="NearTrainers")
    (term,) = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels == {"distributed-input.dev/reads-digits": "true"}
    others = [one for one in spec["tolerations"] if one not in LOST_NODE]
    assert {one["key"] for one in others} == {"nvidia.com/gpu", "google.com/tpu"}


def test_dedicated_avoids_nodes_with_trainers():
    affinity = worker_pod(placement="Dedicated")["affinity"]["podAntiAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"distributed-input.dev/inject": "true"}


def test_spot_nodes_are_tolerated_and_preferred():
    spec = worker_pod(spot=True)
    taints = {(one["key"], one.get("value")) for one in spec["tolerations"]}
    assert ("cloud.google.com/gke-spot", "true") in taints
    assert "nodeAffinity" in spec["affinity"]


def test_pods_leave_a_lost_node_early_unless_the_spec_tolerates_its_taints():
    assert pod_spec("dispatcher")["tolerations"] == LOST_NODE
    assert worker_pod()["tolerations"] == LOST_NODE
    longer = {**LOST_NODE[1], "tolerationSeconds": 600}
    assert worker_pod(**template({"tolerations": [longer]}))["tolerations"] == [
        longer,
        LOST_NODE[0],
    ]
    all_taints = {"operator": "Exists"}
    assert worker_pod(**template({"tolerations": [all_taints]}))["tolerations"] == [all_taints]
