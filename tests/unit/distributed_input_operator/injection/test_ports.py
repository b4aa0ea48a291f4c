"""The ports of the containers that injection adds."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.injection.owners import COMPLETION_INDEX
from distributed_input_operator.injection.pod import host_network_warnings, inject
from distributed_input_operator.injection.ports import HOST_PORTS, free_ports
from distributed_input_operator.injection.trainer_pod import TrainerRank, literal
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    SETTINGS,
    finder,
    job,
    jobset_pod,
    pod,
    resource,
    template,
)

LOCAL = "workers: {local: {cpus: 2, memory: 1Gi}}"
DNS: dict[str, Any] = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}


def trainer(index: int, name: str = "fit", **spec: Any) -> Any:
    """Return a pod of an Indexed Job on the network of the host."""
    of_job = {COMPLETION_INDEX: str(index)}
    return pod(owner=("Job", name), annotations=of_job, hostNetwork=True, **spec)


def ports_of(of: Any) -> list[int]:
    """Return the ports that injection declares, which the API server reserves on the node."""
    made = inject(of, [job(16)], finder(resource("train", LOCAL)), SETTINGS)
    containers = made["spec"]["initContainers"]
    found = [one["containerPort"] for each in containers for one in each["ports"]]
    for each in containers:
        (declared,) = (one["containerPort"] for one in each["ports"])
        assert f":{declared}" in each["args"]
        assert each["livenessProbe"]["httpGet"]["port"] == declared
    return found


def test_the_trainers_of_a_job_have_different_ports_on_a_host():
    found = [port for index in range(16) for port in ports_of(trainer(index))]
    assert len(set(found)) == len(found) == 32
    assert all(port in HOST_PORTS for port in found)


def test_trainers_of_different_jobs_have_different_ports_on_a_host():
    found = [tuple(ports_of(trainer(0, name))) for name in ("night", "day", "week")]
    assert len(set(found)) == 3


def test_a_literal_index_gives_different_ports_too():
    parts = [jobset_pod("a", 0, index) for index in range(4)]
    for one in parts:
        one["spec"]["hostNetwork"] = True
    ranks = [TrainerRank(literal(index), 4, "JobSet fits") for index in range(4)]
    found = [free_ports(one, ["sidecar"], rank)[0] for one, rank in zip(parts, ranks, strict=True)]
    assert len(set(found)) == 4


@given(index=st.integers(0, 10**6), used=st.sets(st.sampled_from(HOST_PORTS), max_size=3))
def test_ports_are_free_in_the_pod_and_the_same_after_the_injection(index, used):
    own = [{"name": "own", "ports": [{"containerPort": port} for port in used]}]
    one, rank = trainer(index, containers=own), TrainerRank(literal(index), None, "test")
    found = free_ports(one, ["a", "b"], rank)
    assert len(set(found)) == 2
    assert not used & set(found)
    added = [
        {"name": name, "ports": [{"containerPort": port}]}
        for name, port in zip("ab", found, strict=True)
    ]
    again = {**one, "spec": {**one["spec"], "initContainers": added}}
    assert free_ports(again, ["a", "b"], rank) == found


def test_in_its_own_network_each_pod_has_the_same_ports():
    rank = TrainerRank(literal(3), 4, "test")
    assert free_ports(pod(), ["a", "b"], rank) == [9090, 9091]
    own = {"name": "trainer", "ports": [{"containerPort": 9090}, {"containerPort": 9091}]}
    assert free_ports(pod(containers=[own]), ["a", "b"], rank) == [9092, 9093]
    added = {"name": "a", "ports": [{"containerPort": 9090}]}
    assert free_ports(pod(initContainers=[added]), ["a", "b"], rank) == [9090, 9091]


def test_templates_of_different_owners_have_different_ports_on_a_host():
    rank = TrainerRank(literal(0), 1, "test")
    a, b = ({"kind": "Job", "metadata": {"name": name, "namespace": "team"}} for name in "ab")
    of_set = {**a, "kind": "StatefulSet"}
    owned = [free_ports(template(**DNS), ["sidecar"], rank, [one])[0] for one in (a, b, of_set)]
    assert len(set(owned)) == 3


def test_a_template_on_the_network_of_the_host_gets_a_warning():
    find = finder(resource("train", "networkPolicy: Open"))
    (warning,) = host_network_warnings(template(**DNS), find)
    assert "each node runs only one of them: use the webhook" in warning
    assert host_network_warnings(pod(**DNS), find) == []
