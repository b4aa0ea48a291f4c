"""Manifests that `distributed-input inject` prints, given to kubectl and a real API server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from distributed_input_operator.injection.yaml_text import dump_yaml
from testing.cluster.binaries import binary
from testing.operator.cluster import Cluster
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import job, resolved, sidecar_of
from tests.unit.distributed_input_operator.injection.test_yaml_text import WORDS

INPUT = manifest("train", workers={"replicas": 0})


@pytest.fixture
def kubectl(cluster: Cluster, control_plane) -> Any:
    """kubectl in the file's namespace; a text to its stdin, its stdout back."""

    def run(text: str, *flags: str) -> str:
        given = ["--kubeconfig", str(control_plane.kubeconfig), "-n", cluster.namespace]
        command = [str(binary("kubectl")), *given, *flags]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def inject(folder: Path, **files: Any) -> str:
    """What the command prints for these files."""
    command = [sys.executable, "-m", "distributed_input.cli", "inject", "--image", "sidecar:1"]
    for name, value in files.items():
        (folder / name).write_text(dump_yaml([value]))
        command += ["-f", str(folder / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_injected_job_runs_pods_with_sidecars_without_any_webhook(cluster, kubectl, tmp_path):
    kubectl(inject(tmp_path, job=job("offline", 2), input=INPUT), "apply", "-f", "-")

    def made() -> Any:
        pods = cluster.list("Pod", "job-name=offline")
        return pods if len(pods) == 2 else []

    assert sorted(resolved(one, sidecar_of(one)) for one in eventually(made)) == [(0, 2), (1, 2)]


def test_kubectl_reads_every_word_as_it_was_meant(kubectl, tmp_path, cluster):
    """It takes YAML's older words, such as y, for something else than text."""
    data = {f"key{place}": word for place, word in enumerate(WORDS) if word != "\x07"}
    head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}}
    kubectl(dump_yaml([{**head, "data": data}]), "apply", "-f", "-")
    assert (cluster.get("ConfigMap", "words") or {})["data"] == data
