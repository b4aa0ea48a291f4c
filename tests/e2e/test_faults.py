"""One training lives through all that may die around it: no row lost, none twice, no restart.

Every test harms something and then holds whole epochs of both trainers against the ledger.
"""

from __future__ import annotations

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
from testing.cluster.fixtures import lacking
from testing.cluster.kubectl import Failed
from testing.cluster.node import NAME as NODE
from testing.cluster.node import Node
from testing.e2e.release import OPERATOR, Release
from testing.e2e.training import NAME, Training, container_id, ready, restarts
from testing.operator.running import eventually

pytestmark = pytest.mark.timeout(900)  # of pods that train, on whatever machine

_INPUT = f"dinput/{NAME}"
_API_DOWN_SECONDS = 30.0
_FULL_SPEED_SECONDS = 60.0
"""Longer than it should take: half of that on a machine with nothing else to do."""


@pytest.fixture(scope="module")
def training(kubectl, whole_cluster) -> Iterator[Training]:
    """It runs all the time; after the last test it ends by itself, its ledger exact."""
    made = Training(kubectl, whole_cluster.images["worker"])
    made.start()
    yield made
    assert made.finish()


@pytest.fixture
def node(whole_cluster):
    """The node, for what the API has no verb for."""
    if whole_cluster.node is None:
        lacking("E2E_KUBECONFIG: its nodes are not ours to harm")
    return whole_cluster.node


@pytest.fixture
def harmed(training, measured):
    """`with harmed("what"):` around a fault and the wait for its end; two workers at both ends."""

    @contextmanager
    def around(what: str, sidecars: int = 0) -> Iterator[None]:
        """sidecars: how many are meant to restart; nothing else beside trainers is."""
        training.workers_ready(2)
        trainers = _restarts(training)
        since = time.time()
        yield
        took = time.time() - since
        training.workers_ready(2)
        training.goes_on()
        within, between = training.longest_stalls(since)
        stall = f"{within:.2f} s within an epoch, {between:.2f} s between two"
        measured(f"{what}: mended after {took:.1f} s; longest wait for a batch {stall}")
        now = _restarts(training)
        assert now.keys() == trainers.keys()
        assert sum(now.values()) - sum(trainers.values()) == sidecars
        for pod in training.trainers():
            (trainer,) = pod["status"]["containerStatuses"]
            assert trainer["restartCount"] == 0

    return around


def _restarts(training: Training) -> dict[str, int]:
    """By trainer pod."""
    return {pod["metadata"]["uid"]: restarts(pod) for pod in training.trainers()}


def test_a_worker_pod_is_deleted(training, harmed):
    with harmed("worker pod deleted"):
        gone = _name(training.workers()[0])
        training.kubectl("delete", "pod", gone, "--wait=false")
        _others_ready(training.workers, {gone}, 2)


def test_a_worker_is_killed(training, harmed, node):
    with harmed("worker killed by SIGKILL"):
        _kill(training, node, training.workers()[0], WORKER_CONTAINER)


def test_the_node_of_the_workers_is_drained(training, harmed, node):
    """There is no other. The budget lets one worker go, and who evicts the other has to wait.
    Then that one is taken, too, and nobody is there to read from until the node takes pods again.
    """
    labels = f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={WORKER}"
    drain = ("drain", NODE, f"--pod-selector={labels}", "--delete-emptydir-data")
    with harmed("node drained of its workers, and open again 5 s later"):
        gone = {_name(pod) for pod in training.workers()}
        try:
            with pytest.raises(Failed, match="disruption budget"):
                training.kubectl(*drain, "--timeout=10s")
            assert sum(map(ready, training.workers())) == 1
            training.kubectl(*drain, "--timeout=60s", "--disable-eviction")
            training.kubectl.wait(_INPUT, "Unschedulable", 30)
            time.sleep(5)
        finally:
            training.kubectl("uncordon", NODE)
        _others_ready(training.workers, gone, 2)


def test_the_dispatcher_pod_is_deleted(training, harmed):
    def dispatchers() -> list[dict[str, Any]]:
        return training.kubectl.list("pod", f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={DISPATCHER}")

    with harmed("dispatcher pod deleted"):
        gone = _name(dispatchers()[0])
        training.kubectl("delete", "pod", gone, "--wait=false")
        _others_ready(dispatchers, {gone}, 1)


def test_the_dispatcher_is_killed(training, harmed, node):
    with harmed("dispatcher killed by SIGKILL"):
        (pod,) = training.kubectl.list(
            "pod", f"{INPUT_LABEL}={NAME},{COMPONENT_LABEL}={DISPATCHER}"
        )
        _kill(training, node, pod, DISPATCHER_CONTAINER)


def test_a_sidecar_is_killed(training, harmed, node):
    with harmed("sidecar killed by SIGKILL", sidecars=1):
        _kill(training, node, training.trainers()[0], SIDECAR_CONTAINER)


def test_the_api_server_is_away(training, harmed, whole_cluster):
    plane = whole_cluster.plane
    if plane is None:
        lacking("E2E_KUBECONFIG: its API server is not ours to stop")
    with harmed(f"API server down for {_API_DOWN_SECONDS:.0f} s"):
        plane.api_server.stop()
        time.sleep(_API_DOWN_SECONDS)
        plane.api_server.start()
        plane.wait_ready()


def test_the_operator_is_killed_while_it_rolls_the_workers_to_another_image(
    training, harmed, node, release, whole_cluster
):
    image = f"{whole_cluster.images['worker']}-next"
    node.tag(whole_cluster.images["worker"], image)
    with harmed("workers rolled to another image, operators killed meanwhile"):
        gone = {_name(pod) for pod in training.workers()}
        # Before they have seen the change, and again as soon as it has begun.
        _kill_operators(release, node)
        training.kubectl("patch", _INPUT, "--type=merge", "-p", _workers(f'"image": "{image}"'))
        eventually(lambda: any(_name(pod) not in gone for pod in training.workers()))
        _kill_operators(release, node)
        _others_ready(training.workers, gone, 2)
        release.kubectl("rollout", "status", OPERATOR, "--timeout=90s")
    assert {pod["spec"]["containers"][0]["image"] for pod in training.workers()} == {image}


def test_workers_are_scaled_to_four_and_one_by_hand(training, harmed):
    with harmed("kubectl scale 2, 4, 1, 2"):
        for count in (4, 1, 2):
            training.kubectl("scale", _INPUT, f"--replicas={count}")
            training.workers_ready(count)
            training.goes_on(1)


def test_workers_are_scaled_to_four_and_one_by_demand(training, measured):
    """Trainers that wait for rows get more workers; trainers that are slow give them back."""
    training.workers_ready(2)
    range_ = '"minReplicas": 1, "maxReplicas": 4, "stabilizationWindowSeconds": 10'
    try:
        training.kubectl(
            *("patch", _INPUT, "--type=merge", "-p"),
            _workers(f'"replicas": null, "autoscaling": {{{range_}}}'),
        )
        rose = training.workers_ready(4, 180)
        training.pace(0.3)
        fell = training.workers_ready(1, 180)
        measured(f"autoscaling: 2 → 4 workers in {rose:.0f} s, 4 → 1 in {fell:.0f} s")
    finally:
        training.pace(0)
        training.kubectl(
            "patch", _INPUT, "--type=merge", "-p", _workers('"replicas": 2, "autoscaling": null')
        )
    training.workers_ready(2)
    training.goes_on(1)


def _workers(fields: str) -> str:
    return f'{{"spec": {{"workers": {{{fields}}}}}}}'


def _name(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"])


def _kill(training: Training, node: Node, pod: dict[str, Any], container: str) -> None:
    """SIGKILL to a container; returns when its pod is ready again with another."""
    assert node.kill(container_id(pod, container))

    def again() -> bool:
        now = training.kubectl.get("pod", _name(pod))
        return restarts(now) > restarts(pod) and ready(now)

    eventually(again, _FULL_SPEED_SECONDS)


def _kill_operators(release: Release, node: Node) -> None:
    """All that run; one at least, which may still be on its way back from the last time."""

    def killed() -> bool:
        pods = release.kubectl.list("pod", "app.kubernetes.io/component=operator")
        return sum(node.kill(container_id(pod, "operator")) for pod in pods) > 0

    eventually(killed)


def _others_ready(look: Callable[[], list[dict[str, Any]]], gone: set[str], count: int) -> None:
    """Wait until so many pods are ready, none of those that were there before."""

    def there() -> bool:
        pods = look()
        return len(pods) == count and all(ready(one) and _name(one) not in gone for one in pods)

    eventually(there, _FULL_SPEED_SECONDS)
