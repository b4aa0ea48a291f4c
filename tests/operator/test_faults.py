"""The operator converges with few writes despite faults of the API server and restarts."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from distributed_input_operator.controller.leader import LEASE_SECONDS
from testing.operator.processes import Operator, eventually, manifest, run_operator
from testing.operator.proxy import Proxy

COUNT = 9
"""Number of children of an input."""
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/distributed-input-operator"


@pytest.fixture
def proxy(control_plane, tmp_path):
    created = Proxy(control_plane.kubeconfig, tmp_path, seed=7)
    yield created
    created.close()


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


def test_with_a_fifth_of_requests_failing_it_converges_with_at_most_twice_the_writes(
    cluster, proxy, tmp_path, inputs
):
    with run_operator(proxy.kubeconfig, cluster.namespace, tmp_path):
        inputs("calm0", "calm1", "calm2")
        settle(cluster, proxy, ["calm0", "calm1", "calm2"])
        writes_without_faults = len(proxy.writes)
        proxy.writes.clear()
        proxy.failure_rate = 0.2
        inputs("storm0", "storm1", "storm2")
        settle(cluster, proxy, ["storm0", "storm1", "storm2"])
        writes_with_faults = list(proxy.writes)
        proxy.failure_rate = 0.0
    print(
        f"{writes_without_faults} writes without faults, {len(writes_with_faults)} with",
        Counter(writes_with_faults).most_common(3),
    )
    assert writes_without_faults >= 3 * COUNT
    assert len(writes_with_faults) <= 2 * writes_without_faults


def settle(cluster, proxy, names) -> None:
    """Wait until all children and the status exist and no more writes occur."""

    def complete() -> bool:
        return all(
            len(cluster.children(name)) == COUNT
            and cluster.condition(name, "Unschedulable").get("status") == "True"
            for name in names
        )

    eventually(complete, 120)

    def quiet() -> bool:
        before = len(proxy.writes)
        time.sleep(3)
        return len(proxy.writes) == before

    eventually(quiet, 60)


def test_an_operator_that_is_killed_after_each_write_converges(cluster, proxy, tmp_path, inputs):
    operator = Operator(proxy.kubeconfig, cluster.namespace, tmp_path)
    try:
        operator.wait_until_leading()
        restarts = 0
        proxy.on_write = lambda: operator.process.kill()  # noqa: PLW0108 - the current process
        inputs("killed")
        while len(cluster.children("killed")) < COUNT:
            operator.process.wait(60)  # each process is killed at its first write
            restarts += 1
            assert restarts <= 2 * COUNT
            # Without this, the next process would wait until the lease expires.
            cluster.call("DELETE", _LEASE.format(cluster.namespace))
            operator.restart()
            if len(cluster.children("killed")) == COUNT:
                break
            operator.process.wait(60)
        proxy.on_write = lambda: None
        operator.restart()
        eventually(lambda: cluster.condition("killed", "Unschedulable"))
        print(f"{restarts} restarts; {Counter(proxy.writes).most_common(3)}")
    finally:
        proxy.on_write = lambda: None
        operator.kill()
        cluster.call("DELETE", _LEASE.format(cluster.namespace))


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
        env = [{"name": "A", "value": "1"}]
        cluster.patch(
            "DistributedInput",
            "kept",
            {
                "spec": {
                    "workers": {
                        "template": {"spec": {"containers": [{"name": "worker", "env": env}]}}
                    }
                }
            },
        )
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
