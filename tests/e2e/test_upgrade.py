"""`helm upgrade` and `helm rollback` during a training do not affect the data plane."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from distributed_input.api.names import (
    CONSUMER_INDEX_ANNOTATION,
    CONSUMERS_ANNOTATION,
    SIDECAR_CONTAINER,
)
from testing.charts.rendering import CHART
from testing.cluster import images
from testing.cluster.fixtures import skip_or_fail
from testing.cluster.kubectl import KubectlError
from testing.e2e.release import image_flags
from testing.e2e.training import NAME, Training, restarts, trainers
from testing.operator.processes import eventually
from testing.releases.sources import extract

# The pods train, possibly on a slow machine. The first run builds images of the previous commit.
pytestmark = pytest.mark.timeout(1800)

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
    training.remove()  # the next test has an input of the same name


@pytest.mark.releases
def test_a_training_of_the_previous_commit_continues_through_upgrade_and_rollback(
    kubectl, release, node_cluster, tmp_path, request, measured
):
    node = node_cluster.node
    if node is None:
        skip_or_fail("E2E_KUBECONFIG is set: this test adds images to the node")
    built = {target: images.previous_image(target) for target in images.TARGETS}
    node.load(*built.values())
    names = {target: image.name for target, image in built.items()}
    # A user's image of workers and trainers. It contains the code of the previous commit.
    own = "localhost/user-of-distributed-input:1"
    node.tag(names["worker"], own)
    extract(tmp_path, "charts", "crds")
    request.addfinalizer(release.install)  # restore the release for other tests
    release.install(tmp_path / "charts" / "distributed-input", *image_flags(names))
    training = Training(kubectl, own)
    training.start(image=own)
    training.wait_for_workers(2)
    before, operators = _restarts(training), _operators(release)
    began = time.time()
    release.install()
    assert not operators & _operators(release)
    _wait_for_injection(training)
    training.wait_for_more_epochs(4)
    assert _restarts(training) == before
    within, between = training.longest_stalls(began)
    measured(f"upgrade: longest stall {within:.2f} s, {between:.2f} s at an epoch")
    # This operator replaces the workers.
    _replace_workers(training, image=own, parallelism=2)
    training.wait_for_more_epochs(2)
    before, operators = _restarts(training), _operators(release)
    began = time.time()
    release.roll_back()
    assert not operators & _operators(release)
    _wait_for_injection(training)
    training.wait_for_more_epochs(2)
    assert _restarts(training) == before
    within, between = training.longest_stalls(began)
    _replace_workers(training, image=own, parallelism=3)
    training.wait_for_more_epochs(2)
    measured(f"rollback: longest stall {within:.2f} s, {between:.2f} s at an epoch")
    epochs = training.finish()
    measured(f"upgrade and rollback under training: {epochs} epochs exact")
    training.remove()


def _wait_for_injection(training: Training) -> None:
    """Wait until a new trainer pod gets its sidecar."""
    job = trainers(NAME, "any", ["trainer.py"], 1)
    template = job["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": "another"}
    pod["metadata"]["annotations"] |= {CONSUMERS_ANNOTATION: "1", CONSUMER_INDEX_ANNOTATION: "0"}

    refusals = []

    def pods_get_a_sidecar() -> bool:
        try:
            flags = ("--dry-run=server", "-ojson", "-f", "-")
            return SIDECAR_CONTAINER in training.kubectl("create", *flags, text=json.dumps(pod))
        except KubectlError as error:
            refusals.append(str(error))
            return False

    try:
        eventually(pods_get_a_sidecar, 60, every=1)
    except AssertionError:
        raise AssertionError(refusals[-1:]) from None


def _replace_workers(training: Training, **workers: Any) -> None:
    """Change the input, and wait until all workers are new and ready."""
    before = {pod["metadata"]["uid"] for pod in training.workers()}
    training.kubectl.apply(training.input(**workers))

    def all_workers_are_new() -> bool:
        return not before & {pod["metadata"]["uid"] for pod in training.workers()}

    eventually(all_workers_are_new, 120)
    training.wait_for_workers(2)


def _restarts(training: Training) -> dict[str, int]:
    """Return the restarts of the data plane's containers by pod, after replaced pods have ended."""

    def pods() -> list[dict[str, Any]]:
        own = training.kubectl.list("pod", "distributed-input.dev/input")
        found = [*own, *training.trainers()]
        return found if len(found) == 5 else []

    return {pod["metadata"]["uid"]: restarts(pod) for pod in eventually(pods, 60)}


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
