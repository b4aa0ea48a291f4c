"""kubectl applies the manifests that `distributed-input inject` prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distributed_input_operator.injection.offline import dump_yaml
from testing.cluster.binaries import binary
from testing.operator.cluster import Cluster
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import consumer_identity, find_sidecar, job
from tests.unit.distributed_input_operator.injection.test_offline import WORDS

INPUT = manifest("train", workers={"replicas": 0})


@pytest.fixture
def kubectl(cluster: Cluster, control_plane) -> Any:
    """Return a function that runs kubectl with a text as stdin and returns its stdout."""

    def run(text: str, *flags: str) -> str:
        options = ["--kubeconfig", str(control_plane.kubeconfig), "-n", cluster.namespace]
        command = [str(binary("kubectl")), *options, *flags]
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def inject(folder: Path, **files: Any) -> str:
    """Return the command's output for these files."""
    command = [sys.executable, "-m", "distributed_input.cli", "inject", "--image", "sidecar:1"]
    for name, value in files.items():
        (folder / name).write_text(dump_yaml([value]))
        command += ["-f", str(folder / name)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_an_injected_job_creates_pods_with_sidecars_without_a_webhook(cluster, kubectl, tmp_path):
    kubectl(inject(tmp_path, job=job("offline", 2), input=INPUT), "apply", "-f", "-")

    def created() -> Any:
        pods = cluster.list("Pod", "job-name=offline")
        return pods if len(pods) == 2 else []

    assert sorted(consumer_identity(one, find_sidecar(one)) for one in eventually(created)) == [
        (0, 2),
        (1, 2),
    ]


def test_kubectl_reads_every_string_as_a_string(kubectl, tmp_path, cluster):
    """kubectl parses some YAML 1.1 words, such as y, as other types."""
    data = {f"key{place}": word for place, word in enumerate(WORDS) if word != "\x07"}
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}}
    kubectl(dump_yaml([{**head, "data": data}]), "apply", "-f", "-")
    assert (cluster.get("ConfigMap", "words") or {})["data"] == data
