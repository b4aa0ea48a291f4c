"""An operator with other pod templates: paced, stopped by failures, the same after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from distributed_input.api.names import INPUT_LABEL, ROLLOUT_ANNOTATION
from distributed_input_operator.kube.kinds import EVENT
from testing.operator.cluster import Cluster
from testing.operator.processes import Operator, eventually, manifest, run_operator, template

pytestmark = pytest.mark.timeout(600)
INPUTS = [f"i{number}" for number in range(5)]


@contextmanager
def operator_with(
    cluster: Cluster, kubeconfig: Any, folder: Any, secret: str, most: str = "2"
) -> Iterator[Operator]:
    """Run an operator whose pod templates have this pull secret."""
    flags = ("--namespace", cluster.namespace, "--image-pull-secret", secret)
    with run_operator(
        kubeconfig, cluster.namespace, folder, *flags, "--rollout-max-inputs", most
    ) as created:
        yield created


@pytest.fixture
def serving(cluster, control_plane, tmp_path):
    """Create inputs whose pods serve, by an operator that has ended."""
    with operator_with(cluster, control_plane.kubeconfig, tmp_path, "first"):
        for name in INPUTS:
            cluster.create(manifest(name, workers={"replicas": 2}))
        for name in INPUTS:
            cluster.wait_until_ready(name, 2)
    yield
    for name in INPUTS:
        cluster.delete("DistributedInput", name)
    eventually(lambda: not cluster.list("Deployment"))


def secret_of(deployment: dict[str, Any]) -> str:
    (found,) = deployment["spec"]["template"]["spec"]["imagePullSecrets"]
    return str(found["name"])


def moving(deployment: dict[str, Any]) -> bool:
    """Return whether the operator's template is on its way to the pods."""
    meta, status = deployment["metadata"], deployment.get("status", {})
    if ROLLOUT_ANNOTATION not in meta["annotations"]:
        return False
    (progress,) = [one for one in status["conditions"] if one["type"] == "Progressing"]
    seen = status.get("observedGeneration", 0) >= meta["generation"]
    complete = progress["reason"] == "NewReplicaSetAvailable" and status.get("updatedReplicas")
    return not seen or not complete


def test_an_upgrade_replaces_the_pods_of_few_inputs_at_a_time(
    cluster, control_plane, tmp_path, serving
):
    most = 0

    def all_have(secret: str) -> bool:
        nonlocal most
        found = cluster.list("Deployment")  # One consistent list.
        parts = [one["metadata"]["labels"][INPUT_LABEL] for one in found if moving(one)]
        assert len(parts) == len(set(parts)), "two parts of one input"
        most = max(most, len(parts))
        for name in INPUTS:
            for component in ("dispatcher", "worker"):
                cluster.simulate_kubelet(name, component)
        return {secret_of(one) for one in found} == {secret} and not parts

    with operator_with(cluster, control_plane.kubeconfig, tmp_path, "second") as operator:
        eventually(lambda: all_have("second"), 300)
        assert 1 <= most <= 2
        # The metric is set after the apply of the last input.
        eventually(lambda: count(operator, "updated") == len(INPUTS))
        assert operator.metric("distributed_input_operator_rollouts") == len(INPUTS)


def count(operator: Operator, state: str) -> float:
    name = f'distributed_input_operator_rollouts{{state="{state}"}} '
    page = operator.get("/metrics")[1]
    return sum(float(line.removeprefix(name)) for line in page.splitlines() if name in line)


def test_a_failing_rollout_stops_and_says_so(cluster, control_plane, tmp_path, serving):
    def deployment(name: str, component: str = "dispatcher") -> Any:
        return cluster.get("Deployment", f"{name}-{component}")

    def replaced() -> list[str]:
        return [name for name in INPUTS if secret_of(deployment(name)) == "bad"]

    def fail(name: str) -> bool:
        """Let the new dispatcher crash."""
        container = {
            "name": "dispatcher",
            "image": "sidecar:1",
            "imageID": "",
            "ready": False,
            "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
            "lastState": {"terminated": {"exitCode": 1, "message": "no such flag"}},
        }
        pods = cluster.pods(name, "dispatcher")
        for pod in pods:
            cluster.set_pod_status(pod["metadata"]["name"], {"containerStatuses": [container]})
        return bool(pods) and "failing" in states()

    def states() -> set[str]:
        names = ("waiting", "failing", "rolling", "updated")
        return {one for one in names if count(operator, one)}

    with operator_with(cluster, control_plane.kubeconfig, tmp_path, "bad") as operator:
        (first,) = eventually(replaced)
        eventually(lambda: fail(first))
        others = [name for name in INPUTS if name != first]
        eventually(lambda: states() == {"failing", "waiting"})
        operator.restart()
        operator.wait_until_leading()
        eventually(lambda: states() == {"failing", "waiting"})
        for name in others:
            eventually(
                lambda name=name: (
                    cluster.condition(name, "UpdatePending").get("reason") == "RolloutStopped"
                ),
                90,
            )
            assert cluster.condition(name, "Ready")["status"] == "True"
            assert secret_of(deployment(name)) == secret_of(deployment(name, "worker")) == "first"
        assert replaced() == [first]
        events = cluster.call("GET", EVENT.path(cluster.namespace))["items"]
        (event,) = [one for one in events if one["reason"] == "RolloutFailing"]
        assert event["involvedObject"]["name"] == first
        assert "no such flag" in event["message"]
        # Changes by users do not wait: a new input, another number, and another image.
        cluster.create(manifest("new"))
        eventually(lambda: secret_of(deployment("new") or deployment(first)) == "bad")
        eventually(lambda: deployment("new", "worker"))
        scaled, changed, *_ = others
        cluster.patch("DistributedInput", scaled, {"spec": {"workers": {"replicas": 3}}})
        eventually(lambda: deployment(scaled, "worker")["spec"]["replicas"] == 3)
        assert secret_of(deployment(scaled, "worker")) == "first"
        image = template(image="mine:2")
        cluster.patch("DistributedInput", changed, {"spec": {"workers": image}})
        eventually(lambda: secret_of(deployment(changed, "worker")) == "bad")
    with operator_with(cluster, control_plane.kubeconfig, tmp_path, "first"):
        # The operator before heals the input that fails at once, while all others serve.
        eventually(lambda: secret_of(deployment(first)) == "first")
    cluster.delete("DistributedInput", "new")
