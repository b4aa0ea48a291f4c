"""An input with the default encryption, and one without encryption, on a real node."""

from __future__ import annotations

import re

import pytest

from distributed_input.api.names import INPUT_LABEL
from testing.charts.rendering import CHART
from testing.e2e.training import NAME, Training, restarts
from testing.operator.processes import eventually

pytestmark = pytest.mark.timeout(600)


def test_an_encrypted_input_trains_and_is_measured(kubectl, node_cluster):
    training = Training(kubectl, node_cluster.images["worker"])
    training.start(replicas=2)
    training.wait_for_more_epochs()
    assert [restarts(pod) for pod in (*training.trainers(), *training.workers())] == [0] * 4
    for pod in training.workers():
        logs = kubectl("logs", pod["metadata"]["name"], "-c", "worker").splitlines()
        assert [line for line in logs if '"level": "warning"' in line] == []

    def is_measured() -> bool:
        """The dispatcher accepts the operator's certificate."""
        status = kubectl.get("dinput", NAME)["status"]
        unmeasured = [one for one in status["conditions"] if one["type"] == "Unmeasured"]
        return bool(status.get("trainers")) and not any(
            one["status"] == "True" for one in unmeasured
        )

    eventually(is_measured, 90)
    secrets = [one["metadata"]["name"] for one in kubectl.list("secret", f"{INPUT_LABEL}={NAME}")]
    assert secrets == [f"{NAME}-distributed-input-tls"], "an encrypted input has no token"
    (first, _) = training.workers()
    kubectl("delete", "pod", first["metadata"]["name"], "--wait=false")
    training.wait_for_more_epochs()
    training.finish()
    training.remove()


def test_an_input_without_encryption_trains_with_a_token(kubectl, node_cluster):
    training = Training(kubectl, node_cluster.images["worker"], encryption="None")
    training.start(replicas=2)
    training.wait_for_more_epochs()
    secrets = [one["metadata"]["name"] for one in kubectl.list("secret", f"{INPUT_LABEL}={NAME}")]
    assert secrets == [f"{NAME}-distributed-input"]
    training.finish()
    training.remove()


def test_helm_test_passes_if_encryption_is_required(release, request):
    request.addfinalizer(release.install)  # restore the values for other tests
    release.install(CHART, "--set=encryption.minimum=All")
    assert re.search(r"Phase:\s+Succeeded", release.test())
