"""The cluster's policy with a real API server: grants, reasons and limits."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client as kubernetes

from distributed_input_operator.controller.budgets import SETTLE_SECONDS
from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.policies import apply_policy, budget, policy, worker_pods, worker_replicas
from testing.operator.processes import Operator, eventually, manifest, run_operator, template

NAME = "requester"


@pytest.fixture(scope="module")
def other(api: kubernetes.ApiClient, cluster: Cluster) -> Iterator[Cluster]:
    """Create another namespace."""
    core: Any = kubernetes.CoreV1Api(api)
    created = Cluster(api, f"op-{uuid.uuid4().hex[:8]}")
    core.create_namespace({"metadata": {"name": created.namespace}})
    yield created
    core.delete_namespace(created.namespace)


@pytest.fixture(scope="module")
def operator(cluster, other, control_plane, tmp_path_factory) -> Iterator[Operator]:
    """Run an operator for both namespaces."""
    flags = ("--namespace", cluster.namespace, "--namespace", other.namespace)
    folder = tmp_path_factory.mktemp("operator")
    with run_operator(control_plane.kubeconfig, cluster.namespace, folder, *flags) as created:
        yield created


@pytest.fixture
def clean(cluster, other):
    """Delete all inputs and the policy after the test."""
    yield
    for one in (cluster, other):
        for each in one.list("DistributedInput"):
            one.delete("DistributedInput", each["metadata"]["name"])
    try:
        cluster.call("DELETE", POLICY.path(None, "cluster"))
    except RequestRejected:
        pass
    eventually(lambda: not worker_pods(cluster) and not worker_pods(other))


def shared(*clusters: Cluster) -> dict:
    """Return the first budget in the policy's status."""
    found = clusters[0].call("GET", POLICY.path(None, "cluster"))
    return (found.get("status", {}).get("budgets") or [{}])[0]


@contextmanager
def never_more_than(limit: int, *clusters: Cluster) -> Iterator[list[int]]:
    """Count pods every 50 ms while the body runs. Fail if a count is greater than `limit`."""
    stop, counts = threading.Event(), [0]

    def count() -> None:
        while not stop.wait(0.05):
            counts.append(sum(len(worker_pods(one)) for one in clusters))

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join(30)
    assert max(counts) <= limit


def test_a_used_up_budget_limits_the_workers_and_the_condition_has_the_reason(
    cluster, operator, clean
):
    apply_policy(cluster, budget(cluster, 6, "research"))
    rich = {"acceleratorsPerTrainer": 64}
    cluster.create(manifest("rich", workers={"replicas": 4}, trainers=rich))
    eventually(lambda: worker_replicas(cluster, "rich") == 4)
    with never_more_than(6, cluster):
        cluster.create(manifest(NAME, workers={"replicas": 9}))
        eventually(lambda: worker_replicas(cluster, NAME) == 2)
        eventually(lambda: len(worker_pods(cluster)) == 6)
    condition = eventually(lambda: cluster.condition(NAME, "ScalingLimited"))
    assert condition["reason"] == "BudgetSpent"
    assert condition["message"] == (
        "2 of 9 requested workers: budget research is used up; "
        f"{cluster.namespace}/rich loses 14300 % more per worker"
    )
    status = cluster.get("DistributedInput", NAME)["status"]["workers"]
    assert (status["requested"], status["desired"]) == (9, 2)
    reported_events = eventually(
        lambda: [e for e in events(cluster) if e["reason"] == "BudgetSpent"]
    )
    assert reported_events[-1]["message"] == condition["message"]
    eventually(lambda: operator.metric("distributed_input_workers_limited") == 7)
    assert 'budget="research"' in operator.get("/metrics")[1]

    apply_policy(cluster, budget(cluster, 20, "research"))
    eventually(lambda: worker_replicas(cluster, NAME) == 9)
    eventually(lambda: not cluster.condition(NAME, "ScalingLimited"))
    eventually(lambda: operator.metric("distributed_input_workers_limited") == 0)
    eventually(lambda: [one for one in events(cluster) if one["reason"] == "ScalingUnlimited"])


def events(cluster: Cluster) -> list:
    """Return the input's events in order."""
    path = f"/api/v1/namespaces/{cluster.namespace}/events"
    found = cluster.call("GET", path, fieldSelector=f"involvedObject.name={NAME}")["items"]
    return sorted(found, key=lambda one: one["lastTimestamp"])


def test_a_namespace_borrows_another_ones_guaranteed_workers_and_returns_them(
    cluster, other, operator, clean
):
    apply_policy(
        cluster,
        {"name": "everything", "limits": {"workers": 10}},
        {"name": "theirs", "namespaces": [other.namespace], "guaranteed": {"workers": 6}},
    )
    cluster.create(manifest(NAME, workers={"replicas": 10}, trainers={"weight": 100}))
    eventually(lambda: worker_replicas(cluster, NAME) == 10 and len(worker_pods(cluster)) == 10)
    with never_more_than(10, cluster, other) as counts:
        other.create(manifest(NAME, workers={"replicas": 8}))
        eventually(lambda: (worker_replicas(cluster, NAME), worker_replicas(other, NAME)) == (4, 6))
        eventually(lambda: len(worker_pods(other)) == 6)
        other.delete("DistributedInput", NAME)
        eventually(lambda: worker_replicas(cluster, NAME) == 10)
        eventually(lambda: len(worker_pods(cluster)) == 10)
    assert len(counts) > 10
    assert eventually(lambda: shared(cluster).get("workers") == 10)


def test_a_budget_can_limit_cpu_for_inputs_with_a_label(cluster, operator, clean):
    team = {
        "name": "team",
        "selector": {"matchLabels": {"team": "a"}},
        "limits": {"resources": {"cpu": "2100m"}},
    }  # 100m: the dispatcher
    apply_policy(cluster, team)
    size = template(resources={"requests": {"cpu": "500m"}})
    labelled = manifest(NAME, workers={"replicas": 5, **size})
    labelled["metadata"]["labels"] = {"team": "a"}
    cluster.create(labelled)
    cluster.create(manifest("others", workers={"replicas": 5}))
    eventually(
        lambda: (worker_replicas(cluster, NAME), worker_replicas(cluster, "others")) == (4, 5)
    )
    condition = eventually(lambda: cluster.condition(NAME, "ScalingLimited"))
    assert condition["message"].startswith("4 of 5 requested workers: budget team is used up")
    cluster.patch("DistributedInput", NAME, {"metadata": {"labels": {"team": "b"}}})
    eventually(lambda: worker_replicas(cluster, NAME) == 5)


def test_a_restarted_operator_keeps_existing_grants(cluster, other, operator, clean):
    apply_policy(cluster, {"name": "everything", "limits": {"workers": 8}})
    for one in (cluster, other):
        one.create(manifest(NAME, workers={"replicas": 8}))
    eventually(lambda: worker_replicas(cluster, NAME) + worker_replicas(other, NAME) == 8)
    eventually(lambda: len(worker_pods(cluster)) + len(worker_pods(other)) == 8)
    before = (worker_replicas(cluster, NAME), worker_replicas(other, NAME))
    operator.kill()
    apply_policy(cluster, {"name": "everything", "limits": {"workers": 9}})
    with never_more_than(9, cluster, other):
        operator.restart()
        operator.wait_until_leading()
        eventually(lambda: worker_replicas(cluster, NAME) + worker_replicas(other, NAME) == 9)
        eventually(lambda: len(worker_pods(cluster)) + len(worker_pods(other)) == 9)
    assert worker_replicas(cluster, NAME) >= before[0]
    assert worker_replicas(other, NAME) >= before[1]


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        (policy(name="mine"), "metadata.name must be 'cluster'"),
        (
            policy(
                {
                    "name": "a",
                    "limits": {"resources": {"cpu": 1}},
                    "guaranteed": {"resources": {"cpu": "1500m"}},
                }
            ),
            "guaranteed.resources is greater than limits.resources",
        ),
        (
            policy({"name": "a", "limits": {"workers": 1}, "guaranteed": {"workers": 2}}),
            "guaranteed.workers is greater than limits.workers",
        ),
        (policy({"name": "a"}, {"name": "a"}), 'Duplicate value: {"name":"a"}'),
        (policy({"name": "Not a name"}), "spec.budgets[0].name"),
        (
            policy(
                {"name": "a", "appliesTo": "OtherInputs", "selector": {"matchLabels": {"b": "c"}}}
            ),
            "OtherInputs excludes namespaces, namespaceSelector and selector",
        ),
        (policy(stallCosts={"gpu": -1}), "spec.stallCosts[gpu]"),
        (policy(caps={"minReplicas": 0}), "spec.caps.minReplicas"),
        (policy(modules=["os:system"]), "spec.modules[0]"),
    ],
)
def test_the_api_server_rejects_an_invalid_policy(cluster, invalid, message):
    with pytest.raises(RequestRejected, match=re.escape(message)):
        cluster.call("POST", POLICY.path(None), invalid)


_LATE_SECONDS = 2 * SETTLE_SECONDS
"""Time for which a ReplicaSet outlives its Deployment. Without it, the operator would release what
the input had after `SETTLE_SECONDS`."""


def _quota(cluster: Cluster, pods: str) -> None:
    """Set the number of pods that the namespace may have."""
    cluster.call(
        "PATCH",
        f"/api/v1/namespaces/{cluster.namespace}/resourcequotas/pods",
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pods"},
            "spec": {"hard": {"pods": pods}},
        },
        "application/apply-patch+yaml",
        fieldManager="tests",
        force="true",
    )


def _replica_sets(cluster: Cluster, name: str = "") -> str:
    return f"/apis/apps/v1/namespaces/{cluster.namespace}/replicasets/{name}".rstrip("/")


def test_a_deleted_inputs_workers_count_while_its_replica_set_may_create_them(
    cluster, other, operator, clean
):
    """The garbage collector deletes the Deployment first. It may be late with the ReplicaSet."""
    apply_policy(cluster, budget(cluster, 3, "shared"))
    late = ""

    def workers_set() -> str:
        found = cluster.call("GET", _replica_sets(cluster), labelSelector=selector)["items"]
        scaled = [one for one in found if one["spec"]["replicas"] == 3]
        return str(scaled[0]["metadata"]["name"]) if scaled else ""

    def hold(finalizers: list[str]) -> None:
        body = {"metadata": {"finalizers": finalizers}}
        path = _replica_sets(cluster, late)
        cluster.call("PATCH", path, body, "application/merge-patch+json")

    selector = "distributed-input.dev/input=leaving,app.kubernetes.io/component=worker"
    _quota(cluster, "0")
    try:
        eventually(lambda: shared(cluster))
        cluster.create(manifest("leaving", workers={"replicas": 3}))
        eventually(lambda: worker_replicas(cluster, "leaving") == 3)
        late = eventually(workers_set)
        hold(["distributed-input.dev/test"])
        cluster.delete("DistributedInput", "leaving")
        eventually(lambda: worker_replicas(cluster, "leaving") == -1)
        cluster.create(manifest("coming", workers={"replicas": 3}))
        eventually(lambda: worker_replicas(cluster, "coming") == 0)
        end, seen = time.monotonic() + _LATE_SECONDS, set()

        def watched() -> bool:
            seen.add(worker_replicas(cluster, "coming"))
            return time.monotonic() > end

        eventually(watched)
        assert seen == {0}
        hold([])
        late = ""
        eventually(lambda: worker_replicas(cluster, "coming") == 3)
    finally:
        if late:
            hold([])
        _quota(cluster, "1000")


def test_classes_and_labels_of_namespaces_are_the_administrators(
    api, cluster, other, operator, clean
):
    core: Any = kubernetes.CoreV1Api(api)
    core.patch_namespace(other.namespace, {"metadata": {"labels": {"of": "us"}}})
    shared_budget = {
        "name": "shared",
        "namespaceSelector": {
            "matchExpressions": [{"key": "of", "operator": "In", "values": ["us"]}]
        },
        "limits": {"workers": 4},
    }
    classes = [{"name": "high", "value": 5, "namespaces": [other.namespace]}]
    apply_policy(cluster, shared_budget, priorityClasses=classes)
    eventually(lambda: shared(cluster))
    declared = {"priority": 1000, "weight": 100}
    other.create(manifest("loud", workers={"replicas": 5}, trainers=declared))
    eventually(lambda: worker_replicas(other, "loud") == 4)
    cluster.create(manifest("free", workers={"replicas": 5}, trainers={"priorityClass": "high"}))
    eventually(lambda: worker_replicas(cluster, "free") == 5)
    eventually(lambda: cluster.condition("free", "Stalled").get("status") == "True")
    refused = cluster.condition("free", "Stalled")
    assert refused["reason"] == "PriorityClassRefused"
    assert "no class high for this namespace" in refused["message"]
    other.create(manifest("chosen", workers={"replicas": 5}, trainers={"priorityClass": "high"}))
    eventually(lambda: worker_replicas(other, "loud") == 1)
    eventually(lambda: worker_replicas(other, "chosen") == 3)


def test_dispatchers_and_named_resources_count(cluster, other, operator, clean):
    """The second input has no room for its dispatcher. The first has none for more accelerators."""
    limits = {"resources": {"cpu": "900m", "example.com/chip": 4}}
    apply_policy(cluster, {"name": "shared", "namespaces": [cluster.namespace], "limits": limits})
    eventually(lambda: shared(cluster))
    resources = {"requests": {"cpu": "100m", "example.com/chip": "2"}}
    resources["limits"] = {"example.com/chip": "2"}
    sizes = {
        "workers": {"replicas": 5, **template(resources=resources)},
        "dispatcher": {"resources": {"requests": {"cpu": "500m"}}},
    }
    cluster.create(manifest("first", **sizes))
    eventually(lambda: worker_replicas(cluster, "first") == 2)
    cluster.create(manifest("second", **sizes))
    eventually(
        lambda: "no dispatcher" in cluster.condition("second", "ScalingLimited").get("message", "")
    )
    dispatcher = cluster.get("Deployment", "second-dispatcher")
    assert dispatcher is not None
    assert (dispatcher["spec"]["replicas"], worker_replicas(cluster, "second")) == (0, 0)
    cluster.delete("DistributedInput", "first")
    eventually(lambda: worker_replicas(cluster, "second") == 2)
