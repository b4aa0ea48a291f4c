"""The steps of the README: install the chart, apply an input, train."""

from __future__ import annotations

import os
import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from testing.cluster import images
from testing.cluster.fixtures import skip_or_fail
from testing.e2e.training import Training, restarts
from testing.operator.processes import eventually

pytestmark = pytest.mark.timeout(900)  # the pods train, possibly on a slow machine

_DIGITS = Path(__file__).parents[2] / "examples/digits/cluster.yaml"
_IMAGE = "distributed-input-digits:latest"
_EPOCHS = 12
_ROWS = 1437


def test_helm_test_streams_a_batch(release):
    assert re.search(r"Phase:\s+Succeeded", release.test())


@pytest.fixture(scope="module")
def digits(node_cluster) -> str:
    """Return the name of the example's image. Load it on the node."""
    if node_cluster.node is None:
        if "E2E_DIGITS_IMAGE" not in os.environ:
            skip_or_fail(
                "E2E_KUBECONFIG is set: also set E2E_DIGITS_IMAGE to an image of examples/digits"
            )
        return os.environ["E2E_DIGITS_IMAGE"]
    created = images.digits()
    node_cluster.node.load(created)
    return created.name


def test_the_digits_example_trains_on_two_pods_and_reads_every_row_once(kubectl, digits, measured):
    """The pods use MultiWorkerMirroredStrategy.

    train.py counts the rows of both. It exits with 1 if a row is missing or duplicated, or if the
    model does not learn.
    """
    text = _DIGITS.read_text()
    assert _IMAGE in text
    started = time.monotonic()
    kubectl("apply", "-f", "-", text=text.replace(_IMAGE, digits))
    # The Job can complete because the sidecars are native ones.
    kubectl.wait("job/digits-trainer", "Complete", 500)
    measured(f"digits on two trainer pods: {time.monotonic() - started:.0f} s for the whole Job")
    pods = kubectl.list("pod", "job-name=digits-trainer")
    assert len(pods) == 2
    for pod in pods:
        assert restarts(pod) == 0
        text = kubectl("logs", pod["metadata"]["name"], "-c", "trainer")
        assert text.count(f"{_ROWS} rows, each exactly once") == _EPOCHS
        (accuracy,) = re.findall(r"test accuracy (\S+)", text)
        assert float(accuracy) >= 0.95


@pytest.mark.parametrize("workers", [1, 2])
def test_an_input_becomes_ready_and_delivers_its_first_batch(
    kubectl, node_cluster, measured, workers
):
    training = Training(kubectl, node_cluster.images["worker"])
    started = time.time()
    training.start(replicas=workers)
    seconds = max(training.first_batches()) - started
    phases = _phases(training, started)
    text = ", ".join(
        f"{name} {at:.1f} s" for name, at in sorted(phases.items(), key=lambda i: i[1])
    )
    measured(
        f"apply to the first batch of both trainers, {workers} workers: {seconds:.1f} s ({text})"
    )
    ready = rf"reads\s+True\s+{workers}/{workers}\s"
    eventually(lambda: re.search(ready, kubectl("get", "dinput", "reads")))
    # No trainer failed or restarted before its first batch.
    assert [restarts(pod) for pod in training.trainers()] == [0, 0]
    training.wait_for_more_epochs()
    training.finish()
    training.remove()


def _phases(training: Training, started: float) -> dict[str, float]:
    """Return the seconds from `started` by phase. The API server's times have whole seconds."""
    found: dict[str, float] = {}

    def add(name: str, time_of: str) -> None:
        at = datetime.fromisoformat(time_of).timestamp() - started
        found[name] = max(found.get(name, 0.0), at)

    for pod in training.workers():
        add("worker pod scheduled", _transition_time(pod, "PodScheduled"))
        add("worker started", _start_time(pod, "worker"))
        add("worker ready", _transition_time(pod, "Ready"))
    for pod in training.trainers():
        add("trainer pod scheduled", _transition_time(pod, "PodScheduled"))
        add("sidecar ready", _transition_time(pod, "Initialized"))
        add("trainer started", _start_time(pod, "trainer"))
    return found


def _transition_time(pod: dict[str, Any], condition: str) -> str:
    (found,) = (one for one in pod["status"]["conditions"] if one["type"] == condition)
    return str(found["lastTransitionTime"])


def _start_time(pod: dict[str, Any], container: str) -> str:
    (found,) = (one for one in pod["status"]["containerStatuses"] if one["name"] == container)
    return str(found["state"]["running"]["startedAt"])
