"""`distributed-input explain NAME`: a real dispatcher, and the status that the operator wrote.

There is no kubelet, so nothing runs in the dispatcher's pod: a script prints what
`kubectl port-forward` prints, and the dispatcher is a process of the test. All other requests are
those of the real kubectl.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testing.cluster.binaries import binary
from testing.operator.cluster import Cluster
from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.policies import budget, policy_in_force
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import free_port

KUBECTL = """#!/bin/sh
case " $* " in *" port-forward "*) echo "Forwarding from 127.0.0.1:{port} -> 7070"; exit;; esac
exec {kubectl} "$@"
"""
Explain = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def explaining(cluster: Cluster, kubeconfig: Path, name: str, folder: Path) -> Iterator[Explain]:
    """Run the input's dispatcher; yield a function that runs `explain` for the input."""
    port = free_port()
    script = folder / "kubectl"
    script.write_text(KUBECTL.format(port=port, kubectl=binary("kubectl")))
    script.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"

    def explain(*flags: str) -> subprocess.CompletedProcess[str]:
        command = ("explain", name, "-n", cluster.namespace, "--timeout", "60", "--seconds", "2")
        return subprocess.run(
            [sys.executable, "-m", "distributed_input.cli", *command, *flags],
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path},
            capture_output=True,
            text=True,
            timeout=200,
        )

    def is_read() -> bool:
        return '"train/0"' in explain("-o", "json").stdout

    with run_dispatcher(port, token_of(cluster, name), folder):
        eventually(is_read)
        yield explain


def cluster_lines(output: str) -> list[str]:
    """Return what the operator reports: each problem as one line, without the label."""
    _, *problems = output.split("\n  cluster: ")
    return [" ".join(one.split()) for one in problems]


@pytest.fixture
def budget_of_one(cluster: Cluster) -> Iterator[None]:
    with policy_in_force(cluster, budget(cluster, 1, "research")):
        yield


@pytest.mark.usefixtures("budget_of_one")
def test_a_budget_that_is_used_up_and_pods_without_a_node(
    cluster: Cluster, control_plane: Any, name: str, tmp_path: Path
) -> None:
    cluster.create(manifest(name, workers={"replicas": 3}))
    eventually(lambda: cluster.condition(name, "ScalingLimited"))
    eventually(lambda: cluster.condition(name, "Unschedulable"))
    with explaining(cluster, control_plane.kubeconfig, name, tmp_path) as explain:
        done, as_json = explain(), explain("-o", "json")
    print(done.stdout)
    assert (done.returncode, as_json.returncode) == (0, 0), done.stderr + as_json.stderr
    assert done.stdout.startswith("train/0: waits for input ")
    assert "\n  cause: " in done.stdout
    lines = cluster_lines(done.stdout)
    assert lines == json.loads(as_json.stdout)["problems"]
    budget = "ScalingLimited is True (BudgetSpent): 1 of 3 requested workers: budget research"
    assert [one for one in lines if one.startswith(budget)], lines
    grant = "budgets grant 1 of the 3 workers that the input needs: see "
    assert [one for one in lines if one.startswith(grant)], lines
    assert [one for one in lines if "no nodes available to schedule pods" in one], lines


def test_a_quota_of_the_namespace(
    cluster: Cluster, control_plane: Any, name: str, tmp_path: Path
) -> None:
    path = f"/api/v1/namespaces/{cluster.namespace}/resourcequotas"
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"requests.cpu": "300m"}}}
    cluster.call("POST", path, {"apiVersion": "v1", "kind": "ResourceQuota", **quota})
    try:
        cluster.create(manifest(name, workers={"replicas": 2}))
        eventually(lambda: cluster.condition(name, "QuotaExceeded"))
        with explaining(cluster, control_plane.kubeconfig, name, tmp_path) as explain:
            done = explain()
    finally:
        cluster.call("DELETE", f"{path}/few")
    print(done.stdout)
    lines = cluster_lines(done.stdout)
    assert [one for one in lines if "QuotaExceeded" in one and "exceeded quota: few" in one], lines
