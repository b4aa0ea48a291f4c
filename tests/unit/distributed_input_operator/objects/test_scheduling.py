"""Where workers run: the exact labels, resources and taints."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.distributed_input_operator.snapshots import NOW, plan, snapshot

LOST = [
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]


def pod(**workers: Any) -> Any:
    """The pod spec of an input's workers."""
    objects = plan(snapshot(workers=workers), NOW).objects
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    return found["Deployment", "digits-worker"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("accelerator", "selector", "resource"),
    [
        (
            {"type": "nvidia", "product": "NVIDIA-L4"},
            {"nvidia.com/gpu.product": "NVIDIA-L4"},
            {"nvidia.com/gpu": "1"},
        ),
        ({"type": "nvidia", "count": 2}, None, {"nvidia.com/gpu": "2"}),
        (
            {"type": "gke-nvidia", "product": "nvidia-l4"},
            {"cloud.google.com/gke-accelerator": "nvidia-l4"},
            {"nvidia.com/gpu": "1"},
        ),
        (
            {"type": "gke-tpu", "product": "tpu-v5p-slice", "topology": "2x2x1", "count": 4},
            {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
                "cloud.google.com/gke-tpu-topology": "2x2x1",
            },
            {"google.com/tpu": "4"},
        ),
    ],
)
def test_accelerators(accelerator, selector, resource):
    spec = pod(accelerator=accelerator)
    assert spec.get("nodeSelector") == selector
    (container,) = spec["containers"]
    assert container["resources"]["limits"] == resource
    assert container["resources"]["requests"].items() >= resource.items()
    taint = {"key": next(iter(resource)), "operator": "Exists", "effect": "NoSchedule"}
    assert spec["tolerations"] == [taint, *LOST]


def test_near_trainers_prefers_their_nodes_and_tolerates_their_taints():
    spec = pod(placement="near-trainers")
    (term,) = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = term["podAffinityTerm"]["labelSelector"]["matchLabels"]
    assert labels == {"distributed-input.dev/reads-digits": "true"}
    tolerated = [one for one in spec["tolerations"] if one not in LOST]
    assert {one["key"] for one in tolerated} == {"nvidia.com/gpu", "google.com/tpu"}


def test_dedicated_keeps_away_from_trainers():
    affinity = pod(placement="dedicated")["affinity"]["podAntiAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {"distributed-input.dev/inject": "true"}


def test_spot_nodes_are_tolerated_and_preferred():
    spec = pod(spot=True)
    taints = {(one["key"], one.get("value")) for one in spec["tolerations"]}
    assert ("cloud.google.com/gke-spot", "true") in taints
    assert "nodeAffinity" in spec["affinity"]


def test_a_lost_node_is_given_up_soon_unless_the_input_says_otherwise():
    found = plan(snapshot(), NOW).objects
    parts = [one["spec"]["template"]["spec"] for one in found if one["kind"] == "Deployment"]
    assert [part["tolerations"] for part in parts] == [LOST, LOST]
    patient = {**LOST[1], "tolerationSeconds": 600}
    assert pod(tolerations=[patient])["tolerations"] == [patient, LOST[0]]
    everything = {"operator": "Exists"}
    assert pod(tolerations=[everything])["tolerations"] == [everything]


def test_real_data_storage_identity_and_priority():
    spec = pod(
        serviceAccountName="reader",
        priorityClassName="low",
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "photos"}}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    )
    assert (spec["serviceAccountName"], spec["priorityClassName"]) == ("reader", "low")
    assert spec["volumes"][-1]["name"] == "data"
    (container,) = spec["containers"]
    assert container["volumeMounts"][-1]["mountPath"] == "/data"
    assert container["env"][-1]["name"] == "KEY"


@pytest.mark.parametrize(
    ("resources", "parallelism"),
    [
        ({}, "1"),
        ({"requests": {"cpu": "3500m"}}, "4"),
        ({"limits": {"cpu": 2}}, "2"),
    ],
)
def test_a_worker_computes_as_many_rows_at_once_as_it_has_cpus(resources, parallelism):
    (container,) = pod(resources=resources)["containers"]
    args = container["args"]
    assert args[args.index("--parallelism") + 1] == parallelism
