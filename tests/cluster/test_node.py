"""The cluster's node runs pods as a real one does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.binaries import binary
from tests.cluster.whole import Cluster

_SECONDS = 120.0
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
# A server of one page; ends when it is told to.
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


def _kubectl(cluster: Cluster, *command: str | Path, text: str = "") -> str:
    done = subprocess.run(
        [binary("kubectl"), f"--kubeconfig={cluster.kubeconfig}", *command],
        input=text,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def space(whole_cluster: Cluster) -> Iterator[str]:
    """A namespace of this file's, under the restricted pod security standard."""
    name = "test-node"
    _kubectl(whole_cluster, "create", "namespace", name)
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    _kubectl(whole_cluster, "label", "namespace", name, enforce)
    yield name
    _kubectl(whole_cluster, "delete", "namespace", name)


def _container(cluster: Cluster, name: str, *command: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": cluster.images["sidecar"],
        "command": list(command),
        "securityContext": _RESTRICTED,
    }


def _apply(cluster: Cluster, space: str, *manifests: dict[str, Any]) -> None:
    _kubectl(cluster, "apply", "-n", space, "-f", "-", text=yaml.safe_dump_all(manifests))


def _job(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 6,
            "template": {"spec": {"restartPolicy": "Never", **spec}},
        },
    }


def test_a_job_completes_beside_a_native_sidecar_and_reaches_a_service_by_name(
    whole_cluster, space
):
    """Scheduling, images, DNS, Services, native sidecars, logs."""
    server = _container(whole_cluster, "server", "python", "-c", _SERVE)
    labels = {"app": "served"}
    pod = {"metadata": {"name": "served", "labels": labels}, "spec": {"containers": [server]}}
    service = {
        "metadata": {"name": "served"},
        "spec": {"selector": labels, "ports": [{"port": 8080}]},
    }
    sidecar = {**_container(whole_cluster, "beside", "python", "-c", _SERVE)}
    job = _job(
        "asks",
        {
            "initContainers": [{**sidecar, "restartPolicy": "Always"}],
            "containers": [_container(whole_cluster, "asks", "python", "-c", _ASK)],
        },
    )
    head = {"apiVersion": "v1"}
    _apply(
        whole_cluster, space, {**head, "kind": "Pod", **pod}, {**head, "kind": "Service", **service}
    )
    wait = ("wait", "-n", space, "--timeout=90s")
    _kubectl(whole_cluster, *wait, "--for=condition=Ready", "pod/served")
    _apply(whole_cluster, space, job)
    _kubectl(whole_cluster, *wait, "--for=condition=Complete", "job/asks")
    assert "answered 200" in _kubectl(whole_cluster, "logs", "-n", space, "job/asks", "-c", "asks")
    said = _kubectl(whole_cluster, "exec", "-n", space, "served", "--", "id", "-u")
    assert said.strip() == "65532"


@pytest.mark.parametrize("target", ["operator", "sidecar", "worker"])
def test_our_commands_start_in_their_images_without_a_writable_disk(whole_cluster, space, target):
    command = "distributed-input-operator" if target == "operator" else "distributed-input"
    container = {
        **_container(whole_cluster, "says", command, "--help"),
        "image": whole_cluster.images[target],
    }
    _apply(whole_cluster, space, _job(f"says-{target}", {"containers": [container]}))
    wait = ("wait", "-n", space, "--timeout=90s", "--for=condition=Complete")
    _kubectl(whole_cluster, *wait, f"job/says-{target}")
    said = _kubectl(whole_cluster, "logs", "-n", space, f"job/says-{target}")
    assert said.startswith(f"usage: {command}")


def test_bringing_it_up_again_changes_nothing(whole_cluster, space):
    from tests.cluster import whole

    before = _kubectl(whole_cluster, "get", "node", "-o", "jsonpath={.items[*].metadata.uid}")
    assert whole.up().kubeconfig == whole_cluster.kubeconfig
    after = _kubectl(whole_cluster, "get", "node", "-o", "jsonpath={.items[*].metadata.uid}")
    assert before == after
