"""The API server fails, the operator dies, another one is there: it converges, with few writes."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from distributed_input_operator.controller.leader import LEASE_SECONDS
from testing.operator.processes import Operator, eventually, manifest, running
from testing.operator.proxy import Proxy

COUNT = 9
"""Children of an input."""
_LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/distributed-input-operator"


@pytest.fixture
def proxy(control_plane, tmp_path):
    made = Proxy(control_plane.kubeconfig, tmp_path, seed=7)
    yield made
    made.close()


@pytest.fixture
def inputs(cluster):
    """Names of inputs that are there, and their end."""
    made: list[str] = []

    def create(*names: str, **spec: object) -> None:
        for name in names:
            cluster.create(manifest(name, **spec))
            made.append(name)

    yield create
    for name in made:
        cluster.delete("DistributedInput", name)
    eventually(lambda: not any(map(cluster.children, made)))


def test_a_fifth_of_all_requests_fails_and_it_converges_with_at_most_twice_the_writes(
    cluster, proxy, tmp_path, inputs
):
    with running(proxy.kubeconfig, cluster.namespace, tmp_path):
        inputs("calm0", "calm1", "calm2")
        settle(cluster, proxy, ["calm0", "calm1", "calm2"])
        calm = len(proxy.writes)
        proxy.writes.clear()
        proxy.rate = 0.2
        inputs("storm0", "storm1", "storm2")
        settle(cluster, proxy, ["storm0", "storm1", "storm2"])
        stormy = list(proxy.writes)
        proxy.rate = 0.0
    print(f"{calm} writes without faults, {len(stormy)} with", Counter(stormy).most_common(3))
    assert calm >= 3 * COUNT
    assert len(stormy) <= 2 * calm


def settle(cluster, proxy, names) -> None:
    """All children are there, their status is told, and nothing more is written."""

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


def test_killed_after_each_of_its_writes_it_converges(cluster, proxy, tmp_path, inputs):
    operator = Operator(proxy.kubeconfig, cluster.namespace, tmp_path)
    try:
        operator.wait_until_leading()
        lives = 0
        proxy.written = lambda: operator.process.kill()  # noqa: PLW0108 - of the present life
        inputs("killed")
        while len(cluster.children("killed")) < COUNT:
            operator.process.wait(60)  # each life ends with its first write
            lives += 1
            assert lives <= 2 * COUNT
            # The next life need not wait until the lease of the last one has run out.
            cluster.call("DELETE", _LEASE.format(cluster.namespace))
            operator.restart()
            if len(cluster.children("killed")) == COUNT:
                break
            operator.process.wait(60)
        proxy.written = lambda: None
        operator.restart()
        eventually(lambda: cluster.condition("killed", "Unschedulable"))
        print(f"{lives} lives; {Counter(proxy.writes).most_common(3)}")
    finally:
        proxy.written = lambda: None
        operator.kill()
        cluster.call("DELETE", _LEASE.format(cluster.namespace))


def test_two_operators_one_works_and_the_other_takes_over(cluster, control_plane, tmp_path, inputs):
    both = [Operator(control_plane.kubeconfig, cluster.namespace, tmp_path) for _ in range(2)]
    try:

        def leaders() -> list[Operator]:
            return [one for one in both if one.metric("distributed_input_operator_leader") == 1]

        eventually(leaders)
        inputs("shared")
        eventually(lambda: len(cluster.children("shared")) == COUNT)
        (leader,) = leaders()
        (other,) = [one for one in both if one is not leader]
        eventually(lambda: other.get("/readyz")[0] == 200)
        assert other.writes() == 0
        leader.kill()
        started = time.monotonic()
        other.wait_until_leading()
        print(f"taken over after {time.monotonic() - started:.1f} s")
        cluster.patch("DistributedInput", "shared", {"spec": {"replicas": 2}}, "scale")
        eventually(lambda: len(cluster.pods("shared")) == 2)
    finally:
        for one in both:
            one.kill()


def test_who_is_asked_to_end_gives_the_lease_to_another_at_once(
    cluster, control_plane, tmp_path, inputs
):
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
        print(f"led on after {seconds:.1f} s")
        assert seconds < LEASE_SECONDS / 2
    finally:
        first.kill()
        if second is not None:
            second.stop()


def test_who_slept_through_its_lease_ends_at_once_and_writes_nothing(
    cluster, control_plane, tmp_path, inputs
):
    sleeper = Operator(control_plane.kubeconfig, cluster.namespace, tmp_path)
    other = None
    try:
        sleeper.wait_until_leading()
        sleeper.process.send_signal(signal.SIGSTOP)
        other = Operator(control_plane.kubeconfig, cluster.namespace, tmp_path)
        other.wait_until_leading()
        sleeper.process.send_signal(signal.SIGCONT)
        assert sleeper.process.wait(30) == 1
        assert "lease" in sleeper.logged()
    finally:
        sleeper.kill()
        if other is not None:
            other.stop()


def test_a_watch_that_tells_nothing_turns_the_health_page_red_and_is_made_up_for(
    cluster, proxy, tmp_path, inputs
):
    flags = ("--namespace", cluster.namespace, "--resync-seconds", "5")
    with running(proxy.kubeconfig, cluster.namespace, tmp_path, *flags) as operator:
        inputs("heard")
        eventually(lambda: len(cluster.children("heard")) == COUNT)
        assert operator.get("/healthz")[0] == 200
        proxy.frozen.set()
        inputs("unheard")
        eventually(lambda: operator.get("/healthz")[0] == 503)
        why = operator.get("/healthz")[1]
        assert "no events arrive of" in why
        assert "DistributedInput" in why
        eventually(lambda: len(cluster.children("unheard")) == COUNT)
        operator.kill()
    cluster.call("DELETE", _LEASE.format(cluster.namespace))


def test_an_operator_with_other_default_images_restarts_nothing(
    cluster, control_plane, tmp_path, inputs
):
    def deployments() -> dict[str, str]:
        parts = ("kept-dispatcher", "kept-worker")
        return {one: cluster.get("Deployment", one)["metadata"]["generation"] for one in parts}

    with running(control_plane.kubeconfig, cluster.namespace, tmp_path):
        inputs("kept")
        cluster.all_serve("kept", 1)
        before = deployments()
    images = ("--worker-image", "worker:2", "--sidecar-image", "sidecar:2")
    flags = (*images, "--namespace", cluster.namespace)
    with running(control_plane.kubeconfig, cluster.namespace, tmp_path, *flags):
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
        cluster.patch("DistributedInput", "kept", {"spec": {"workers": {"env": env}}})
        eventually(lambda: cluster.all_serve("kept", 2) or workers() == ["worker:2", "worker:2"])


def test_the_definition_is_upgraded_under_live_inputs(cluster, control_plane, tmp_path, inputs):
    from tests.operator.conftest import install

    with running(control_plane.kubeconfig, cluster.namespace, tmp_path) as operator:
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

            def kept() -> bool:
                cluster.patch("DistributedInput", "live", later)
                return cluster.get("DistributedInput", "live")["spec"].get("later") == "y"

            # An older operator under a newer definition goes on with what it knows.
            eventually(kept)
            eventually(lambda: len(cluster.pods("live")) == 2)
            assert cluster.condition("live", "Ready")["reason"] == "Unschedulable"
        finally:
            install(cluster)
        assert operator.process.poll() is None
        left = [pod["metadata"]["uid"] for pod in cluster.pods("live")]
        assert set(pods) <= set(left)
