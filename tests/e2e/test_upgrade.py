"""`helm upgrade` during a training: a new operator and CRD do not affect the data plane."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.charts.rendering import CHART
from testing.cluster.fixtures import skip_or_fail
from testing.e2e.training import Training, restarts

pytestmark = pytest.mark.timeout(900)  # the pods train, possibly on a slow machine

_CRD = "distributedinputs.distributed-input.dev"


def test_an_upgrade_restarts_no_pod_of_the_data_plane(
    kubectl, release, node_cluster, tmp_path, request, measured
):
    node = node_cluster.node
    if node is None:
        skip_or_fail("E2E_KUBECONFIG is set: this test adds images of the next version to the node")
    request.addfinalizer(release.install)  # restore the release for other tests
    training = Training(kubectl, node_cluster.images["worker"])
    training.start()
    training.wait_for_workers(2)
    before = _restarts(training)
    operators = _operators(release)
    # The new chart has new images, also as defaults for workers and sidecars.
    flags = []
    for target in ("operator", "sidecar", "worker"):
        next_image = f"{node_cluster.images[target]}-next"
        node.tag(node_cluster.images[target], next_image)
        flags.append(f"--set-string=images.{target}.tag={next_image.rpartition(':')[2]}")
    release.install(_next_version(tmp_path), *flags)
    assert not operators & _operators(release)
    assert "aFieldOfTheNextVersion" in kubectl("get", "crd", _CRD, "-oyaml")
    training.wait_for_more_epochs(3)
    assert _restarts(training) == before
    epochs = training.finish()
    measured(f"helm upgrade under training: {epochs} epochs exact, no pod of the input replaced")


def _restarts(training: Training) -> dict[str, int]:
    """Return the restarts of the data plane's containers by pod."""
    pods = [*training.kubectl.list("pod", "distributed-input.dev/input"), *training.trainers()]
    assert len(pods) == 5
    return {pod["metadata"]["uid"]: restarts(pod) for pod in pods}


def _operators(release: Any) -> set[str]:
    pods = release.kubectl.list("pod", "app.kubernetes.io/component=operator")
    return {pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}


def _next_version(folder: Path) -> Path:
    """Create a copy of the chart with a later version and an additional field in the CRD."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    metadata_file = chart / "Chart.yaml"
    metadata = yaml.safe_load(metadata_file.read_text())
    metadata_file.write_text(
        yaml.safe_dump({**metadata, "version": "99.0.0", "appVersion": "99.0.0"})
    )
    file = chart / "files" / "distributedinputs.yaml"
    crd = yaml.safe_load(file.read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["aFieldOfTheNextVersion"] = {"type": "string"}
    file.write_text(yaml.safe_dump(crd, sort_keys=False))
    return chart
