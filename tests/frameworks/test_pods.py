"""Ranks that torchrun starts in real pods, with sidecars from the webhook."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api import environment as variables
from distributed_input.api import names
from testing.cluster import images
from testing.cluster.fixtures import skip_or_fail
from testing.cluster.kubectl import Kubectl
from testing.e2e.release import Release
from testing.e2e.training import trainers
from testing.frameworks import environment
from testing.operator.webhooks import find_sidecar
from tests.e2e.conftest import release

__all__ = ["release"]

NAME = "ranks"
SECONDS = 400
"""Of one training: eight processes import PyTorch, on few cores."""
EVERY, BATCH = 104, 8
"""Rows of an epoch and of a step, so that each rank has a row of each step."""
PORT = 29500
_TESTING = Path(__file__).parents[2] / "testing"
_PROGRAM = _TESTING / "frameworks/torchrun_ranks.py"
_DATASET = _TESTING / "integration/datasets/rows.py"
pytestmark = pytest.mark.timeout(4 * SECONDS + 1500)  # it may create the environment


class Pods:
    """Trainings of one input in Jobs of pods, one after the other.

    kubectl: of the namespace. folder: of this machine, which all pods mount.
    """

    def __init__(self, kubectl: Kubectl, image: str, site_packages: Path, folder: Path) -> None:
        self._kubectl = kubectl
        self._image = image
        self._site_packages = site_packages
        self._folder = folder
        files = {one.name: one.read_text() for one in (_DATASET, _PROGRAM)}
        kubectl.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": files},
            _input(),
            _service(),
        )

    def train(self, pods: int, ranks: int, *numbers: int, ends: str) -> list[list[int]]:
        """Run torchrun in pods with so many ranks each, until their Job has a condition.

        numbers: STEPS, SAVED and KILLED of the program. Return the rows of each step.
        """
        name = f"{NAME}-{pods}x{ranks}"
        arguments = [*map(str, numbers), "/state/state.pt", f"/state/{name}.jsonl"]
        self._kubectl.apply(self._job(name, pods, ranks, arguments))
        try:
            self._kubectl.wait(f"job/{name}", ends, SECONDS)
        except BaseException:
            print(self._kubectl("describe", "pods"), self._logs(name))
            raise
        for pod in self._kubectl.list("pod", f"job-name={name}"):
            find_sidecar(pod)
        self._kubectl("delete", f"job/{name}", "--cascade=foreground", "--timeout=90s")
        lines = (self._folder / f"{name}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def _logs(self, name: str) -> str:
        labels = f"-ljob-name={name}"
        return self._kubectl("logs", labels, "--prefix", "--tail=60", "--all-containers")

    def _job(self, name: str, pods: int, ranks: int, arguments: list[str]) -> dict[str, Any]:
        job = trainers(NAME, self._image, [_PROGRAM.name], pods)
        job["metadata"]["name"] = name
        template = job["spec"]["template"]
        template["metadata"]["annotations"][names.RANKS_ANNOTATION] = str(ranks)
        (container,) = template["spec"]["containers"]
        container["command"] = [
            *("python", "-m", "torch.distributed.run", f"--nnodes={pods}"),
            *(f"--nproc-per-node={ranks}", f"--node-rank=$({variables.CONSUMER_INDEX_ENV})"),
            *(f"--master-addr={name}-0.{NAME}", f"--master-port={PORT}"),
            *(f"/code/{_PROGRAM.name}", *arguments),
        ]
        container["env"] = [{"name": "PYTHONPATH", "value": "/frameworks"}]
        mounts = {"frameworks": self._site_packages, "state": self._folder}
        for volume, path in mounts.items():
            container["volumeMounts"].append({"name": volume, "mountPath": f"/{volume}"})
            source = {"path": str(path), "type": "Directory"}
            template["spec"]["volumes"].append({"name": volume, "hostPath": source})
        template["spec"]["subdomain"] = NAME
        return job


def _input() -> dict[str, Any]:
    entry = {
        "function": "rows:numbered",
        "args": {"rows": EVERY},
        "source": {"type": "ConfigMap", "configMap": {"name": NAME}},
    }
    worker = {"name": "worker", "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}}
    return {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": NAME},
        "spec": {
            "dataset": {"type": "EntryPoint", "entryPoint": entry},
            "batching": {"globalBatchSize": BATCH},
            "partitions": 8,
            "numSplits": 8,
            "workers": {"replicas": 2, "template": {"spec": {"containers": [worker]}}},
            # The default is 250m for each rank: two pods of four would need the node alone.
            "sidecar": {"buffer": "1Mi", "resources": {"requests": {"cpu": "50m"}}},
        },
    }


def _service() -> dict[str, Any]:
    """Return the Service that gives the pods names, before they are ready."""
    selector = {names.INJECT_LABEL: "true"}
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec}


@pytest.fixture
def pods(node_cluster, release: Release, tmp_path: Path) -> Iterator[Pods]:
    """Provide pods with PyTorch, which they mount from this machine."""
    if node_cluster.node is None:
        skip_or_fail("E2E_KUBECONFIG is set: the pods mount folders of this machine")
    if sys.version_info[:2] != images.PYTHON:
        version = "{}.{}".format(*images.PYTHON)
        skip_or_fail(f"the images have Python {version}: run this with the same one")
    tmp_path.chmod(0o777)  # the pods' user is not root
    kubectl = Kubectl(release.kubectl.kubeconfig, "e2e-frameworks")
    kubectl("create", "namespace", kubectl.namespace)
    try:
        yield Pods(kubectl, node_cluster.images["sidecar"], environment.site_packages(), tmp_path)
    finally:
        kubectl("delete", "namespace", kubectl.namespace, "--timeout=120s")


def test_ranks_in_pods_resume_in_other_numbers_of_pods_and_ranks(pods: Pods) -> None:
    """Two pods of two ranks are killed, and resume as one of two and as two of four."""
    total, saved, killed = 2 * EVERY // BATCH, 5, 8
    epoch = [list(range(first, first + BATCH)) for first in range(0, EVERY, BATCH)]
    before = pods.train(2, 2, total, saved, killed, ends="Failed")
    assert before == (2 * epoch)[: len(before)]
    assert saved < len(before) < total
    assert pods.train(1, 2, total, 0, 0, ends="Complete") == (2 * epoch)[saved:]
    assert pods.train(2, 4, total, 0, 0, ends="Complete") == (2 * epoch)[saved:]
