"""The cluster's node runs pods like a real node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testing.cluster.kubectl import Kubectl
from testing.cluster.lifecycle import NodeCluster

_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# A server of one page that exits on SIGTERM.
_SERVE = """
import http.server, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.test(http.server.SimpleHTTPRequestHandler, port=8080)
"""
_ASK = """
import urllib.request
with urllib.request.urlopen("http://served:8080/", timeout=60) as answer:
    print("answered", answer.status)
"""


@pytest.fixture(scope="module")
def kubectl(node_cluster: NodeCluster) -> Iterator[Kubectl]:
    """Provide kubectl in a namespace of this file with the restricted pod security standard."""
    created = Kubectl(node_cluster.kubeconfig, "test-node")
    created("create", "namespace", created.namespace)
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    created("label", "namespace", created.namespace, enforce)
    yield created
    created("delete", "namespace", created.namespace)


def _container(cluster: NodeCluster, name: str, *command: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": cluster.images["sidecar"],
        "command": list(command),
        "securityContext": _RESTRICTED,
    }


def _job(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 6, "template": {"spec": {"restartPolicy": "Never", **spec}}},
    }


def test_a_job_completes_beside_a_native_sidecar_and_reaches_a_service_by_name(
    node_cluster, kubectl
):
    """This covers scheduling, images, DNS, Services, native sidecars and logs."""
    server = _container(node_cluster, "server", "python", "-c", _SERVE)
    labels = {"app": "served"}
    pod = {"metadata": {"name": "served", "labels": labels}, "spec": {"containers": [server]}}
    service = {
        "metadata": {"name": "served"},
        "spec": {"selector": labels, "ports": [{"port": 8080}]},
    }
    sidecar = _container(node_cluster, "beside", "python", "-c", _SERVE)
    asking = _container(node_cluster, "asks", "python", "-c", _ASK)
    before = [{**sidecar, "restartPolicy": "Always"}]
    job = _job("asks", {"initContainers": before, "containers": [asking]})
    head = {"apiVersion": "v1"}
    kubectl.apply({**head, "kind": "Pod", **pod}, {**head, "kind": "Service", **service})
    kubectl.wait("pod/served", "Ready")
    kubectl.apply(job)
    kubectl.wait("job/asks", "Complete")
    assert "answered 200" in kubectl("logs", "job/asks", "-c", "asks")
    assert kubectl("exec", "served", "--", "id", "-u").strip() == "65532"


@pytest.mark.parametrize("target", ["operator", "sidecar", "worker"])
def test_the_commands_start_in_their_images_with_a_read_only_root_file_system(
    node_cluster, kubectl, target
):
    command = "distributed-input-operator" if target == "operator" else "distributed-input"
    container = {
        **_container(node_cluster, "help", command, "--help"),
        "image": node_cluster.images[target],
    }
    kubectl.apply(_job(f"help-{target}", {"containers": [container]}))
    kubectl.wait(f"job/help-{target}", "Complete")
    assert kubectl("logs", f"job/help-{target}").lower().startswith(f"usage: {command}")


def test_starting_a_running_cluster_changes_nothing(node_cluster, kubectl):
    from testing.cluster import lifecycle

    nodes = ("get", "node", "-o", "jsonpath={.items[*].metadata.uid}")
    before = kubectl(*nodes)
    assert lifecycle.up().kubeconfig == node_cluster.kubeconfig
    assert kubectl(*nodes) == before
