"""The cluster's policy before a real API server: what is granted and why, and never too much."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client as kubernetes

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster, Refused
from testing.operator.policies import apply, policy, replicas, workers
from testing.operator.processes import Operator, eventually, manifest, running

NAME = "wants"


@pytest.fixture(scope="module")
def other(api: kubernetes.ApiClient, cluster: Cluster) -> Iterator[Cluster]:
    """Another namespace."""
    core: Any = kubernetes.CoreV1Api(api)
    made = Cluster(api, f"op-{uuid.uuid4().hex[:8]}")
    core.create_namespace({"metadata": {"name": made.namespace}})
    yield made
    core.delete_namespace(made.namespace)


@pytest.fixture(scope="module")
def operator(cluster, other, control_plane, tmp_path_factory) -> Iterator[Operator]:
    """An operator that serves both namespaces."""
    flags = ("--namespace", cluster.namespace, "--namespace", other.namespace)
    folder = tmp_path_factory.mktemp("operator")
    with running(control_plane.kubeconfig, cluster.namespace, folder, *flags) as made:
        yield made


@pytest.fixture
def clean(cluster, other):
    """No inputs and no policy, before others come."""
    yield
    for one in (cluster, other):
        for each in one.list("DistributedInput"):
            one.delete("DistributedInput", each["metadata"]["name"])
    try:
        cluster.call("DELETE", POLICY.path(None, "cluster"))
    except Refused:
        pass
    eventually(lambda: not workers(cluster) and not workers(other))


def shared(*clusters: Cluster) -> dict:
    """The policy's first budget, as its status has it."""
    found = clusters[0].call("GET", POLICY.path(None, "cluster"))
    return (found.get("status", {}).get("budgets") or [{}])[0]


@contextmanager
def never_more_than(limit: int, *clusters: Cluster) -> Iterator[list[int]]:
    """Counts pods as often as it can, while the body runs; fails where there were more."""
    over, seen = threading.Event(), [0]

    def count() -> None:
        while not over.wait(0.05):
            seen.append(sum(len(workers(one)) for one in clusters))

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(30)
    assert max(seen) <= limit


def test_a_spent_budget_gives_fewer_workers_and_says_why(cluster, operator, clean):
    apply(
        cluster, {"name": "research", "namespaces": [cluster.namespace], "limits": {"workers": 6}}
    )
    rich = {"acceleratorsPerTrainer": 64}
    cluster.create(manifest("rich", workers={"replicas": 4}, trainers=rich))
    eventually(lambda: replicas(cluster, "rich") == 4)
    with never_more_than(6, cluster):
        cluster.create(manifest(NAME, workers={"replicas": 9}))
        eventually(lambda: replicas(cluster, NAME) == 2)
        eventually(lambda: len(workers(cluster)) == 6)
    said = eventually(lambda: cluster.condition(NAME, "ScalingLimited"))
    assert said["reason"] == "BudgetSpent"
    assert said["message"] == (
        "2 of 9 requested workers: budget research is used up; "
        f"{cluster.namespace}/rich loses 14300 % more per worker"
    )
    status = cluster.get("DistributedInput", NAME)["status"]["workers"]
    assert (status["asked"], status["desired"]) == (9, 2)
    told = eventually(lambda: [e for e in events(cluster) if e["reason"] == "BudgetSpent"])
    assert told[-1]["message"] == said["message"]
    eventually(lambda: operator.metric("distributed_input_workers_limited") == 7)
    assert said["message"] in operator.get("/metrics")[1]

    apply(
        cluster, {"name": "research", "namespaces": [cluster.namespace], "limits": {"workers": 20}}
    )
    eventually(lambda: replicas(cluster, NAME) == 9)
    eventually(lambda: not cluster.condition(NAME, "ScalingLimited"))
    eventually(lambda: operator.metric("distributed_input_workers_limited") == 0)
    eventually(lambda: [one for one in events(cluster) if one["reason"] == "ScalingUnlimited"])


def events(cluster: Cluster) -> list:
    """Of the input."""
    path = f"/api/v1/namespaces/{cluster.namespace}/events"
    found = cluster.call("GET", path, fieldSelector=f"involvedObject.name={NAME}")["items"]
    return sorted(found, key=lambda one: one["lastTimestamp"])


def test_one_namespace_borrows_what_another_is_guaranteed_and_gives_it_back(
    cluster, other, operator, clean
):
    apply(
        cluster,
        {"name": "everything", "limits": {"workers": 10}},
        {"name": "theirs", "namespaces": [other.namespace], "guaranteed": {"workers": 6}},
    )
    cluster.create(manifest(NAME, workers={"replicas": 10}, trainers={"weight": 100}))
    eventually(lambda: replicas(cluster, NAME) == 10 and len(workers(cluster)) == 10)
    with never_more_than(10, cluster, other) as seen:
        other.create(manifest(NAME, workers={"replicas": 8}))
        eventually(lambda: (replicas(cluster, NAME), replicas(other, NAME)) == (4, 6))
        eventually(lambda: len(workers(other)) == 6)
        other.delete("DistributedInput", NAME)
        eventually(lambda: replicas(cluster, NAME) == 10)
        eventually(lambda: len(workers(cluster)) == 10)
    assert len(seen) > 10
    assert eventually(lambda: shared(cluster).get("workers") == 10)


def test_cpu_and_labels_count_too(cluster, operator, clean):
    team = {"name": "team", "selector": {"team": "a"}, "limits": {"cpu": "2"}}
    apply(cluster, team)
    mine = manifest(NAME, workers={"replicas": 5, "resources": {"requests": {"cpu": "500m"}}})
    mine["metadata"]["labels"] = {"team": "a"}
    cluster.create(mine)
    cluster.create(manifest("others", workers={"replicas": 5}))
    eventually(lambda: (replicas(cluster, NAME), replicas(cluster, "others")) == (4, 5))
    said = eventually(lambda: cluster.condition(NAME, "ScalingLimited"))
    assert said["message"].startswith("4 of 5 requested workers: budget team is used up")
    cluster.patch("DistributedInput", NAME, {"metadata": {"labels": {"team": "b"}}})
    eventually(lambda: replicas(cluster, NAME) == 5)


def test_a_restarted_operator_changes_nothing_and_goes_on(cluster, other, operator, clean):
    apply(cluster, {"name": "everything", "limits": {"workers": 8}})
    for one in (cluster, other):
        one.create(manifest(NAME, workers={"replicas": 8}))
    eventually(lambda: replicas(cluster, NAME) + replicas(other, NAME) == 8)
    eventually(lambda: len(workers(cluster)) + len(workers(other)) == 8)
    before = (replicas(cluster, NAME), replicas(other, NAME))
    operator.kill()
    apply(cluster, {"name": "everything", "limits": {"workers": 9}})
    with never_more_than(9, cluster, other):
        operator.restart()
        operator.wait_until_leading()
        eventually(lambda: replicas(cluster, NAME) + replicas(other, NAME) == 9)
        eventually(lambda: len(workers(cluster)) + len(workers(other)) == 9)
    assert replicas(cluster, NAME) >= before[0]
    assert replicas(other, NAME) >= before[1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (policy(name="mine"), "metadata.name must be 'cluster'"),
        (
            policy({"name": "a", "limits": {"cpu": 1}, "guaranteed": {"cpu": "1500m"}}),
            "guaranteed.cpu is greater than limits.cpu",
        ),
        (
            policy({"name": "a", "limits": {"workers": 1}, "guaranteed": {"workers": 2}}),
            "guaranteed.workers is greater than limits.workers",
        ),
        (policy({"name": "a"}, {"name": "a"}), 'Duplicate value: {"name":"a"}'),
        (policy({"name": "Not a name"}), "spec.budgets[0].name"),
        (policy(stallCosts={"gpu": -1}), "spec.stallCosts.gpu"),
    ],
)
def test_mistakes_are_refused_by_the_api_server(cluster, wrong, words):
    with pytest.raises(Refused, match=re.escape(words)):
        cluster.call("POST", POLICY.path(None), wrong)
