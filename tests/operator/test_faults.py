"""Operators that are killed, stopped, suspended and upgraded."""

from __future__ import annotations

import signal
import time

import pytest

from distributed_input_operator.controller.leader import LEASE_SECONDS
from testing.operator.processes import Operator, eventually, manifest, run_operator, template

COUNT = 9
"""Number of children of an input."""


@pytest.fixture
def inputs(cluster):
    """Return a function that creates inputs. Delete them after the test."""
    created: list[str] = []

    def create(*names: str, **spec: object) -> None:
        for name in names:
            cluster.create(manifest(name, **spec))
            created.append(name)

    yield create
    for name in created:
        cluster.delete("DistributedInput", name)
    eventually(lambda: not any(map(cluster.children, created)))


def test_a_second_operator_takes_over_when_the_leader_is_killed(
    cluster, control_plane, tmp_path, inputs
):
    operators = [Operator(control_plane.kubeconfig, cluster.namespace, tmp_path) for _ in range(2)]
    try:

        def leaders() -> list[Operator]:
            return [
                one for one in operators if one.metric("distributed_input_operator_leader") == 1
            ]

        eventually(leaders)
        inputs("shared")
        eventually(lambda: len(cluster.children("shared")) == COUNT)
        (leader,) = leaders()
        (other,) = [one for one in operators if one is not leader]
        eventually(lambda: other.get("/readyz")[0] == 200)
        assert other.writes() == 0
        leader.kill()
        started = time.monotonic()
        other.wait_until_leading()
        print(f"taken over after {time.monotonic() - started:.1f} s")
        cluster.patch("DistributedInput", "shared", {"spec": {"replicas": 2}}, "scale")
        eventually(lambda: len(cluster.pods("shared")) == 2)
    finally:
        for one in operators:
            one.kill()


def test_an_operator_releases_its_lease_on_sigterm(cluster, control_plane, tmp_path, inputs):
    first = Operator(control_plane.kubeconfig, cluster.namespace, tmp_path)
    second = None
    try:
        first.wait_until_leading()
        second = Operator(control_plane.kubeconfig, cluster.namespace, tmp_path)
        eventually(lambda: second.get("/readyz")[0] == 200)
        assert first.stop() == 0
        started = time.monotonic()
        second.wait_until_leading()
        seconds = time.monotonic() - started
        print(f"new leader after {seconds:.1f} s")
        assert seconds < LEASE_SECONDS / 2
    finally:
        first.kill()
        if second is not None:
            second.stop()


def test_an_operator_that_was_suspended_past_its_lease_exits_with_an_error(
    cluster, control_plane, tmp_path, inputs
):
    suspended = Operator(control_plane.kubeconfig, cluster.namespace, tmp_path)
    other = None
    try:
        suspended.wait_until_leading()
        suspended.process.send_signal(signal.SIGSTOP)
        other = Operator(control_plane.kubeconfig, cluster.namespace, tmp_path)
        other.wait_until_leading()
        suspended.process.send_signal(signal.SIGCONT)
        assert suspended.process.wait(30) == 1
        assert "lease" in suspended.read_log()
    finally:
        suspended.kill()
        if other is not None:
            other.stop()


def test_new_default_images_of_the_operator_restart_no_existing_pods(
    cluster, control_plane, tmp_path, inputs
):
    def deployments() -> dict[str, str]:
        parts = ("kept-dispatcher", "kept-worker")
        return {one: cluster.get("Deployment", one)["metadata"]["generation"] for one in parts}

    with run_operator(control_plane.kubeconfig, cluster.namespace, tmp_path):
        inputs("kept")
        cluster.wait_until_ready("kept", 1)
        before = deployments()
    images = ("--worker-image", "worker:2", "--sidecar-image", "sidecar:2")
    flags = (*images, "--namespace", cluster.namespace)
    with run_operator(control_plane.kubeconfig, cluster.namespace, tmp_path, *flags):
        inputs("new")
        eventually(lambda: cluster.condition("new", "Unschedulable"))
        cluster.patch("DistributedInput", "kept", {"metadata": {"labels": {"touched": "1"}}})
        cluster.patch("DistributedInput", "kept", {"spec": {"workers": {"replicas": 2}}})
        eventually(lambda: len(cluster.pods("kept")) == 2)

        def workers() -> list[str]:
            found = [pod["spec"]["containers"][0]["image"] for pod in cluster.pods("kept")]
            return sorted(found)

        assert workers() == ["worker:1", "worker:1"]
        assert deployments()["kept-dispatcher"] == before["kept-dispatcher"]
        assert cluster.pods("new")[0]["spec"]["containers"][0]["image"] == "worker:2"
        env = template(env=[{"name": "A", "value": "1"}])
        cluster.patch("DistributedInput", "kept", {"spec": {"workers": env}})
        eventually(
            lambda: cluster.wait_until_ready("kept", 2) or workers() == ["worker:2", "worker:2"]
        )


def test_the_crd_can_be_upgraded_with_existing_inputs(cluster, control_plane, tmp_path, inputs):
    from tests.operator.conftest import install

    with run_operator(control_plane.kubeconfig, cluster.namespace, tmp_path) as operator:
        inputs("live")
        eventually(lambda: cluster.condition("live", "Unschedulable"))
        pods = [pod["metadata"]["uid"] for pod in cluster.pods("live")]
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        name = "distributedinputs.distributed-input.dev"
        found = cluster.call("GET", f"{path}/{name}")
        schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schema["properties"]["spec"]["properties"]["later"] = {"type": "string", "default": "x"}
        cluster.call("PUT", f"{path}/{name}", found)
        try:
            later = {"spec": {"later": "y", "workers": {"replicas": 2}}}

            def accepted() -> bool:
                cluster.patch("DistributedInput", "live", later)
                return cluster.get("DistributedInput", "live")["spec"].get("later") == "y"

            # An older operator with a newer CRD ignores unknown fields.
            eventually(accepted)
            eventually(lambda: len(cluster.pods("live")) == 2)
            eventually(lambda: cluster.condition("live", "Ready")["reason"] == "Unschedulable")
        finally:
            install(cluster)
        assert operator.process.poll() is None
        remaining = [pod["metadata"]["uid"] for pod in cluster.pods("live")]
        assert set(pods) <= set(remaining)
