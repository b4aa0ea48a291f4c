"""helm upgrade under live training: a new operator and a new definition, and nobody notices."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.charts.rendering import CHART
from testing.cluster.fixtures import lacking
from testing.e2e.training import Training, restarts

pytestmark = pytest.mark.timeout(900)  # of pods that train, on whatever machine

_CRD = "distributedinputs.distributed-input.dev"


def test_nothing_of_the_data_plane_restarts(
    kubectl, release, whole_cluster, tmp_path, request, measured
):
    node = whole_cluster.node
    if node is None:
        lacking("E2E_KUBECONFIG: the next version's image is not there")
    request.addfinalizer(release.install)  # what other tests stand on
    training = Training(kubectl, whole_cluster.images["worker"])
    training.start()
    training.workers_ready(2)
    before = _alive(training)
    operators = _operators(release)
    # The new chart's images are other ones, the defaults of workers and sidecars too.
    flags = []
    for target in ("operator", "sidecar", "worker"):
        next_ = f"{whole_cluster.images[target]}-next"
        node.tag(whole_cluster.images[target], next_)
        flags.append(f"--set-string=images.{target}.tag={next_.rpartition(':')[2]}")
    release.install(_next_version(tmp_path), *flags)
    assert not operators & _operators(release)
    assert "aFieldOfTheNextVersion" in kubectl("get", "crd", _CRD, "-oyaml")
    training.goes_on(3)
    assert _alive(training) == before
    epochs = training.finish()
    measured(f"helm upgrade under training: {epochs} epochs exact, no pod of the input replaced")


def _alive(training: Training) -> dict[str, int]:
    """The data plane's pods and how often their containers restarted."""
    pods = [*training.kubectl.list("pod", "distributed-input.dev/input"), *training.trainers()]
    assert len(pods) == 5
    return {pod["metadata"]["uid"]: restarts(pod) for pod in pods}


def _operators(release: Any) -> set[str]:
    pods = release.kubectl.list("pod", "app.kubernetes.io/component=operator")
    return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def _next_version(folder: Path) -> Path:
    """This chart with a later version, and a definition with one field more."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    about = chart / "Chart.yaml"
    said = yaml.safe_load(about.read_text())
    about.write_text(yaml.safe_dump({**said, "version": "99.0.0", "appVersion": "99.0.0"}))
    file = chart / "files" / "distributedinputs.yaml"
    crd = yaml.safe_load(file.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["aFieldOfTheNextVersion"] = {"type": "string"}
    file.write_text(yaml.safe_dump(crd, sort_keys=False))
    return chart
