"""A training survives faults of every component: no lost or duplicate row, no restart.

Each test causes a fault and then verifies the rows of complete epochs of both trainers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from distributed_input.api.names import (
    COMPONENT_LABEL,
    DISPATCHER,
    DISPATCHER_CONTAINER,
    INPUT_LABEL,
    SIDECAR_CONTAINER,
    WORKER,
    WORKER_CONTAINER,
)
from testing.cluster.fixtures import skip_or_fail
from testing.cluster.kubectl import KubectlError
from testing.cluster.node import NAME as NODE
from testing.cluster.node import Node
from testing.e2e.release import OPERATOR, Release
from testing.e2e.training import NAME, Training, container_id, ready, restarts
from testing.operator.processes import eventually

pytestmark = pytest.mark.timeout(900)  # the pods train, possibly on a slow machine

_INPUT = f"dinput/{NAME}"
_API_DOWN_SECONDS = 30.0
_OPERATOR_RETURN_SECONDS = 120.0
"""Restart back-off of killed containers (10 to 40 s), the dead leader's lease, and the start."""
_FULL_SPEED_SECONDS = 60.0
"""Maximum recovery time. An idle machine needs half of it."""


@pytest.fixture(scope="module")
def training(kubectl, node_cluster) -> Iterator[Training]:
    """Run one training during all tests. Stop it after the last one and verify its rows."""
    created = Training(kubectl, node_cluster.images["worker"])
    created.start()
    yield created
    assert created.finish()


@pytest.fixture
def node(node_cluster):
    """Provide the node, for faults that the Kubernetes API cannot cause."""
    if node_cluster.node is None:
        skip_or_fail("E2E_KUBECONFIG is set: this test kills processes of the node")
    return node_cluster.node


@pytest.fixture
def fault(training, measured):
    """Return a context manager: `with fault("name"):` causes a fault and waits for recovery.

    There are two workers before and after it.
    """

    @contextmanager
    def run_fault(name: str, sidecars: int = 0) -> Iterator[None]:
        """Check the recovery. sidecars: expected number of restarts in the trainer pods."""
        training.wait_for_workers(2)
        before = _restarts(training)
        since = time.time()
        yield
        duration = time.time() - since
        training.wait_for_workers(2)
        training.wait_for_more_epochs()
        within, between = training.longest_stalls(since)
        stall = f"{within:.2f} s within an epoch, {between:.2f} s between two"
        measured(f"{name}: recovered after {duration:.1f} s; longest wait for a batch {stall}")
        after = _restarts(training)
        assert after.keys() == before.keys()
        assert sum(after.values()) - sum(before.values()) == sidecars
        for pod in training.trainers():
            (trainer,) = pod["status"]["containerStatuses"]
            assert trainer["restartCount"] == 0

    return run_fault


def _restarts(training: Training) -> dict[str, int]:
    """Return the restarts by trainer pod."""
    return {pod["metadata"]["uid"]: restarts(pod) for pod in training.trainers()}


def test_a_worker_pod_is_deleted(training, fault):
    with fault("worker pod deleted"):
        previous = _name(training.workers()[0])
        training.kubectl("delete", "pod", previous, "--wait=false")
        _wait_for_replacements(training.workers, {previous}, 2)


def test_a_worker_is_killed(training, fault, node):
    with fault("worker killed by SIGKILL"):
        _kill(training, node, training.workers()[0], WORKER_CONTAINER)


def test_the_node_of_the_workers_is_drained(training, fault, node):
    """The cluster has one node. The disruption budget allows the eviction of one worker only.

    Then the test deletes the other worker, too. Until the node is uncordoned,
    trainers have no worker.
    """
    labels = f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={WORKER}"
    drain = ("drain", NODE, f"--pod-selector={labels}", "--delete-emptydir-data")
    with fault("node drained of its workers, uncordoned after 5 s"):
        previous = {_name(pod) for pod in training.workers()}
        try:
            with pytest.raises(KubectlError, match="disruption budget"):
                training.kubectl(*drain, "--timeout=10s")
            assert sum(map(ready, training.workers())) == 1
            training.kubectl(*drain, "--timeout=60s", "--disable-eviction")
            training.kubectl.wait(_INPUT, "Unschedulable", 30)
            time.sleep(5)
        finally:
            training.kubectl("uncordon", NODE)
        _wait_for_replacements(training.workers, previous, 2)


def test_the_dispatcher_pod_is_deleted(training, fault):
    def dispatchers() -> list[dict[str, Any]]:
        return training.kubectl.list("pod", f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={DISPATCHER}")

    with fault("dispatcher pod deleted"):
        previous = _name(dispatchers()[0])
        training.kubectl("delete", "pod", previous, "--wait=false")
        _wait_for_replacements(dispatchers, {previous}, 1)


def test_the_dispatcher_is_killed(training, fault, node):
    with fault("dispatcher killed by SIGKILL"):
        (pod,) = training.kubectl.list(
            "pod", f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={DISPATCHER}"
        )
        _kill(training, node, pod, DISPATCHER_CONTAINER)


def test_a_sidecar_is_killed(training, fault, node):
    with fault("sidecar killed by SIGKILL", sidecars=1):
        _kill(training, node, training.trainers()[0], SIDECAR_CONTAINER)


def test_the_api_server_is_down(training, fault, node_cluster):
    plane = node_cluster.plane
    if plane is None:
        skip_or_fail("E2E_KUBECONFIG is set: this test stops the API server")
    with fault(f"API server down for {_API_DOWN_SECONDS:.0f} s"):
        plane.api_server.stop()
        time.sleep(_API_DOWN_SECONDS)
        plane.api_server.start()
        plane.wait_ready()


def test_the_operator_is_killed_while_it_updates_the_image_of_the_workers(
    training, fault, node, release, node_cluster
):
    image = f"{node_cluster.images['worker']}-next"
    node.tag(node_cluster.images["worker"], image)
    with fault("operators killed while they update the image of the workers"):
        previous = {_name(pod) for pod in training.workers()}
        # Kill them before they receive the change, and again when the update has started.
        _kill_operators(release, node)
        training.kubectl("patch", _INPUT, "--type=merge", "-p", _workers(_template(image)))
        eventually(
            lambda: any(_name(pod) not in previous for pod in training.workers()),
            _OPERATOR_RETURN_SECONDS,
        )
        _kill_operators(release, node)
        # Killed twice, so that the back-off of their restarts counts here, too.
        seconds = _OPERATOR_RETURN_SECONDS + _FULL_SPEED_SECONDS
        _wait_for_replacements(training.workers, previous, 2, seconds)
        release.kubectl("rollout", "status", OPERATOR, "--timeout=90s")
    assert {pod["spec"]["containers"][0]["image"] for pod in training.workers()} == {image}


def test_workers_are_scaled_manually(training, fault):
    with fault("kubectl scale 2, 4, 1, 2"):
        for count in (4, 1, 2):
            training.kubectl("scale", _INPUT, f"--replicas={count}")
            training.wait_for_workers(count)
            training.wait_for_more_epochs(1)


def test_workers_are_scaled_by_demand(training, measured):
    """Trainers that wait for rows get more workers. Slow trainers get fewer."""
    training.wait_for_workers(2)
    autoscaling = '"minReplicas": 1, "maxReplicas": 4, "stabilizationWindowSeconds": 10'
    try:
        training.kubectl(
            *("patch", _INPUT, "--type=merge", "-p"),
            _workers(f'"replicas": null, "autoscaling": {{{autoscaling}}}'),
        )
        up_seconds = training.wait_for_workers(4, 180)
        training.set_step_seconds(0.3)
        down_seconds = training.wait_for_workers(1, 180)
        measured(f"autoscaling: 2 → 4 workers in {up_seconds:.0f} s, 4 → 1 in {down_seconds:.0f} s")
    finally:
        training.set_step_seconds(0)
        training.kubectl(
            "patch", _INPUT, "--type=merge", "-p", _workers('"replicas": 2, "autoscaling": null')
        )
    training.wait_for_workers(2)
    training.wait_for_more_epochs(1)


def _template(image: str) -> str:
    containers = [{"name": "worker", "image": image}]
    return f'"template": {json.dumps({"spec": {"containers": containers}})}'


def _workers(fields: str) -> str:
    return f'{{"spec": {{"workers": {{{fields}}}}}}}'


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _kill(training: Training, node: Node, pod: dict[str, Any], container: str) -> None:
    """Send SIGKILL to a container and wait until its pod is ready with a new container."""
    assert node.kill(container_id(pod, container))

    def restarted() -> bool:
        after = training.kubectl.get("pod", _name(pod))
        return restarts(after) > restarts(pod) and ready(after)

    eventually(restarted, _FULL_SPEED_SECONDS)


def _kill_operators(release: Release, node: Node) -> None:
    """Kill all running operators. Wait for one if all are still restarting."""

    def killed() -> bool:
        pods = release.kubectl.list("pod", "app.kubernetes.io/component=operator")
        return sum(node.kill(container_id(pod, "operator")) for pod in pods) > 0

    eventually(killed)


def _wait_for_replacements(
    look: Callable[[], list[dict[str, Any]]],
    previous: set[str],
    count: int,
    seconds: float = _FULL_SPEED_SECONDS,
) -> None:
    """Wait until exactly `count` pods are ready and none is in `previous`."""

    def are_ready() -> bool:
        pods = look()
        return len(pods) == count and all(ready(one) and _name(one) not in previous for one in pods)

    eventually(are_ready, seconds)
