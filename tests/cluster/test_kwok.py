"""Fake nodes run pods according to labels and accelerators."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes import client as kubernetes
from kubernetes import watch

from testing.cluster.kwok import FakeNodes

_SECONDS = 60


@pytest.fixture(scope="module")
def nodes(control_plane):
    with FakeNodes(control_plane) as created:
        yield created


def test_a_pod_runs_on_the_node_with_its_accelerator(api, nodes, namespace):
    nodes.add(f"{namespace}-plain")
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    nodes.add(f"{namespace}-gpu", {"some": "gpu"}, {"nvidia.com/gpu": "8"}, [taint])
    container = {"name": "any", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "2"}}}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    core: Any = kubernetes.CoreV1Api(api)
    core.create_namespaced_pod(
        namespace,
        {
            "metadata": {"name": "accelerated"},
            "spec": {"containers": [container], "tolerations": tolerations},
        },
    )
    for event in watch.Watch().stream(
        core.list_namespaced_pod, namespace, timeout_seconds=_SECONDS
    ):
        pod = event["object"]
        if pod.status.phase == "Running":
            assert pod.spec.node_name == f"{namespace}-gpu"
            return
    pytest.fail(f"the pod does not run after {_SECONDS} s: {pod.status}")
