"""Commands of users about an input in a cluster: the real kubectl and a real API server.

No pod runs here, so nothing serves the dispatcher.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testing.cluster.binaries import binary
from testing.operator.processes import eventually, manifest

NAME = "asked"


@pytest.fixture(scope="module")
def command(cluster, operator, control_plane):
    """Return a function that runs a subcommand with the cluster's kubeconfig."""
    path = f"{binary('kubectl').parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig), "PATH": path}
    cluster.create(manifest(NAME, workers={"replicas": 2}))
    eventually(lambda: cluster.condition(NAME, "Unschedulable"))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "distributed_input.cli", *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )

    yield run
    cluster.delete("DistributedInput", NAME)


@pytest.mark.parametrize("name", ["status", "explain", "top"])
def test_a_dispatcher_that_does_not_run_is_reported_with_the_conditions(command, cluster, name):
    done = command(name, NAME, "-n", cluster.namespace)
    assert done.returncode == 1, done.stderr
    assert f"distributed-input {name}: the dispatcher of {NAME} cannot be reached" in done.stderr
    assert "WorkersAvailable is False (Starting): 0 of 2 workers" in done.stderr


@pytest.mark.parametrize("name", ["status", "explain", "top", "logs"])
def test_an_input_that_does_not_exist(command, cluster, name):
    done = command(name, "missing", "-n", cluster.namespace)
    assert done.returncode == 2, done.stderr
    assert '"missing" not found' in done.stderr


def test_the_logs_of_pods_that_do_not_run_are_empty(command, cluster):
    done = command("logs", NAME, "-n", cluster.namespace)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_the_installation(command):
    done = command("doctor")
    lines = {line.split()[1]: line for line in done.stdout.splitlines() if line[:1] != " "}
    assert lines["cluster"].startswith("ok"), done.stdout
    assert "DistributedInput v1beta1" in lines["definition"]
    assert lines["operator"].startswith("warning")  # it runs outside of the cluster here
    assert lines["rights"].startswith("ok")
