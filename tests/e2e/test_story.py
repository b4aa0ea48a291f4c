"""What the README tells: install, apply, train."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from testing.cluster import images
from testing.cluster.fixtures import lacking
from testing.e2e.training import Training, restarts
from testing.operator.running import eventually

pytestmark = pytest.mark.timeout(900)  # of pods that train, on whatever machine

_DIGITS = Path(__file__).parents[2] / "examples/digits/cluster.yaml"
_IMAGE = "distributed-input-digits:latest"
_EPOCHS = 12
_ROWS = 1437


def test_helm_test_streams_a_batch(release):
    assert re.search(r"Phase:\s+Succeeded", release.test())


@pytest.fixture(scope="module")
def digits(whole_cluster) -> str:
    """The name of the example's image, on the node."""
    if whole_cluster.node is None:
        if "E2E_DIGITS_IMAGE" not in os.environ:
            lacking(
                "E2E_KUBECONFIG is set: set E2E_DIGITS_IMAGE to an image of examples/digits, too"
            )
        return os.environ["E2E_DIGITS_IMAGE"]
    made = images.digits()
    whole_cluster.node.load(made)
    return made.name


def test_the_digits_train_on_two_pods_and_every_row_comes_once(kubectl, digits, measured):
    """Under MultiWorkerMirroredStrategy: train.py counts the rows of both and ends with 1 where one
    is missing, comes twice, or nothing was learned.
    """
    text = _DIGITS.read_text()
    assert _IMAGE in text
    began = time.monotonic()
    kubectl("apply", "-f", "-", text=text.replace(_IMAGE, digits))
    # Complete at all: the sidecars are native ones, and do not hold the pods.
    kubectl.wait("job/digits-trainer", "Complete", 170)
    measured(f"digits on two trainer pods: {time.monotonic() - began:.0f} s for the whole Job")
    pods = kubectl.list("pod", "job-name=digits-trainer")
    assert len(pods) == 2
    for pod in pods:
        assert restarts(pod) == 0
        said = kubectl("logs", pod["metadata"]["name"], "-c", "trainer")
        assert said.count(f"{_ROWS} rows, each exactly once") == _EPOCHS
        (accuracy,) = re.findall(r"test accuracy (\S+)", said)
        assert float(accuracy) >= 0.95


@pytest.mark.parametrize("workers", [1, 2])
def test_an_input_is_ready_and_its_first_batch_there_in_seconds(
    kubectl, whole_cluster, measured, workers
):
    training = Training(kubectl, whole_cluster.images["worker"])
    began = time.time()
    training.start(replicas=workers)
    seconds = max(training.first_batches()) - began
    phases = _phases(training, began)
    said = ", ".join(
        f"{name} {at:.1f} s" for name, at in sorted(phases.items(), key=lambda i: i[1])
    )
    measured(
        f"apply to the first batch of both trainers, {workers} workers: {seconds:.1f} s ({said})"
    )
    ready = rf"reads\s+True\s+{workers}/{workers}\s"
    eventually(lambda: re.search(ready, kubectl("get", "dinput", "reads")))
    # The trainers were refused nothing and restarted by nobody on the way.
    assert [restarts(pod) for pod in training.trainers()] == [0, 0]
    training.goes_on()
    training.finish()
    training.remove()


def _phases(training: Training, began: float) -> dict[str, float]:
    """Seconds from `began`, whole ones, for the API server's times have no more."""
    found: dict[str, float] = {}
    for pod in training.workers():
        _note(found, "worker pod scheduled", _at(pod, "PodScheduled"), began)
        _note(found, "worker started", _started(pod, "worker"), began)
        _note(found, "worker ready", _at(pod, "Ready"), began)
    for pod in training.trainers():
        _note(found, "trainer pod scheduled", _at(pod, "PodScheduled"), began)
        _note(found, "sidecar ready", _at(pod, "Initialized"), began)
        _note(found, "trainer started", _started(pod, "trainer"), began)
    return found


def _note(found: dict[str, float], name: str, at: float, began: float) -> None:
    found[name] = max(found.get(name, 0.0), at - began)


def _at(pod: dict[str, Any], condition: str) -> float:
    (found,) = (one for one in pod["status"]["conditions"] if one["type"] == condition)
    return _seconds(found["lastTransitionTime"])


def _started(pod: dict[str, Any], container: str) -> float:
    (found,) = (one for one in pod["status"]["containerStatuses"] if one["name"] == container)
    return _seconds(found["state"]["running"]["startedAt"])


def _seconds(time_of: str) -> float:
    return datetime.fromisoformat(time_of).timestamp()
