"""Inputs change and operators restart, but the workers never exceed the budgets.

A watch observes every state in order, so that no violation is missed.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client as kubernetes
from kubernetes import watch
from urllib3.exceptions import HTTPError

from distributed_input_operator.kube.kinds import POLICY
from testing.operator.cluster import Cluster
from testing.operator.policies import budget, policy_in_force
from testing.operator.processes import Operator, eventually, manifest

ALL, TEAM = 12, 5
_CHANGES, _ROUNDS = 25, 3
_INPUTS = 10
_WORKERS = "app.kubernetes.io/component=worker"


class PeakWatch(threading.Thread):
    """Watches the objects of one list and records their maximum total weight.

    Attributes: `current`, the weight of each object now; `events`, the number of events; `peak` and
    `team_peak`, the weights by name when the total, or that of the team, was highest.
    """

    def __init__(self, listing: Any, namespace: str, weight: Callable[[Any], int]) -> None:
        super().__init__(daemon=True)
        self._listing, self._namespace, self._weight = listing, namespace, weight
        self._stopped = False
        self.current: dict[str, int] = {}
        self.events = 0
        self.peak: dict[str, int] = {}
        self.team_peak: dict[str, int] = {}

    def run(self) -> None:
        try:
            # Without a timeout, it continues after the API server ends a watch that is too slow.
            events = watch.Watch().stream(self._listing, self._namespace, label_selector=_WORKERS)
            for event in events:
                self._record(event["object"], deleted=event["type"] == "DELETED")
        except HTTPError:
            if not self._stopped:  # after stop(), the API server may have exited
                raise

    def _record(self, obj: Any, *, deleted: bool) -> None:
        current = {name: n for name, n in self.current.items() if name != obj.metadata.name}
        if not deleted:
            current[obj.metadata.name] = self._weight(obj)
        team = {name: n for name, n in current.items() if name.startswith("team-")}
        self.peak = max(self.peak, current, key=lambda one: sum(one.values()))
        self.team_peak = max(self.team_peak, team, key=lambda one: sum(one.values()))
        self.current = current
        self.events += 1

    def stop(self) -> None:
        """Ignore connection errors from now on."""
        self._stopped = True


@contextmanager
def watch_workers(control_plane: Any, namespace: str) -> Iterator[tuple[PeakWatch, PeakWatch]]:
    """Watch the replicas of the workers' Deployments, and the worker pods."""
    with control_plane.client() as api:
        apps: Any = kubernetes.AppsV1Api(api)
        core: Any = kubernetes.CoreV1Api(api)
        deployments = PeakWatch(
            apps.list_namespaced_deployment, namespace, lambda one: int(one.spec.replicas)
        )
        pods = PeakWatch(core.list_namespaced_pod, namespace, lambda _: 1)
        for one in (deployments, pods):
            one.start()
        try:
            yield deployments, pods
        finally:
            for one in (deployments, pods):
                one.stop()


class Churn:
    """Random changes of inputs."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._random = cluster, random.Random(seed)
        self.inputs: dict[str, int] = {}
        self._created = 0

    def change_one(self) -> None:
        """Make one random change to one input."""
        choices = (
            [self._create]
            if not self.inputs
            else [self._delete, self._resize, self._change_priority]
        )
        choices += [self._create] * (len(self.inputs) < _INPUTS)
        self._random.choice(choices)()

    def exceed_all_budgets(self) -> None:
        """Request more workers than each budget allows, with priority for the team."""
        for name, count, priority in (("team-last", TEAM + 1, 10), ("free-last", ALL, 9)):
            created = manifest(name, workers={"replicas": count}, trainers={"priority": priority})
            created["metadata"]["labels"] = {"team": "a"} if name == "team-last" else {}
            self._cluster.create(created)
            self.inputs[name] = count

    def _create(self) -> None:
        self._created += 1
        team = self._random.random() < 0.5
        name = f"{'team' if team else 'free'}-{self._created}"
        count = self._random.randint(1, 6)
        created = manifest(name, workers={"replicas": count})
        created["metadata"]["labels"] = {"team": "a"} if team else {}
        self._cluster.create(created)
        self.inputs[name] = count

    def _delete(self) -> None:
        name = self._any_name()
        del self.inputs[name]
        self._cluster.delete("DistributedInput", name)

    def _resize(self) -> None:
        name = self._any_name()
        self.inputs[name] = count = self._random.randint(0, 8)
        self._patch(name, workers={"replicas": count})

    def _change_priority(self) -> None:
        weight, priority = self._random.choice(["100m", 1, 10]), self._random.randint(0, 2)
        self._patch(self._any_name(), trainers={"weight": weight, "priority": priority})

    def _any_name(self) -> str:
        return self._random.choice(sorted(self.inputs))

    def _patch(self, name: str, **spec: Any) -> None:
        self._cluster.patch("DistributedInput", name, {"spec": spec})

    def expected_total(self) -> int:
        """Return the number of workers that all inputs get in the end."""
        team = sum(count for name, count in self.inputs.items() if name.startswith("team-"))
        return min(ALL, min(TEAM, team) + sum(self.inputs.values()) - team)


@pytest.fixture
def budgets(cluster: Cluster) -> Iterator[None]:
    """Set a budget for all inputs and a smaller one for a team's inputs."""
    team = {"selector": {"matchLabels": {"team": "a"}}, "limits": {"workers": TEAM}}
    with policy_in_force(cluster, budget(cluster, ALL), {"name": "team", **team}):
        path = POLICY.path(None, "cluster")
        eventually(lambda: cluster.call("GET", path).get("status"))  # the operator has applied it
        yield


def totals(one: PeakWatch) -> tuple[int, int]:
    """Return the current number of workers, and of those the team's."""
    team = sum(count for name, count in one.current.items() if name.startswith("team-"))
    return sum(one.current.values()), team


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1])
def test_no_budget_is_exceeded_at_any_moment(
    cluster: Cluster, operator: Operator, control_plane: Any, budgets: None, seed: int
) -> None:
    churn = Churn(cluster, seed)
    with watch_workers(control_plane, cluster.namespace) as (deployments, pods):
        for number in range(_ROUNDS):
            for _ in range(_CHANGES):
                churn.change_one()
            if number == 1:
                operator.restart()  # the next changes happen without a leader
                for _ in range(_CHANGES):
                    churn.change_one()
                operator.wait_until_leading()
            eventually(lambda: sum(deployments.current.values()) == churn.expected_total())
            eventually(lambda: sum(pods.current.values()) == churn.expected_total())
        # On a busy machine, the changes above may not have used up a budget.
        churn.exceed_all_budgets()
        for one in (deployments, pods):
            eventually(lambda one=one: totals(one) == (ALL, TEAM))
        for name in churn.inputs:
            cluster.delete("DistributedInput", name)
        eventually(lambda: not sum(pods.current.values()))
    for one in (deployments, pods):
        assert one.events > 10 * _ROUNDS
        assert sum(one.peak.values()) == ALL, f"the maximum is not the budget: {one.peak}"
        assert sum(one.team_peak.values()) == TEAM, one.team_peak


MANY = 100
"""More pods than the controller-manager creates at once: 30, and then 20 per second."""


@pytest.fixture
def large(cluster: Cluster) -> Iterator[None]:
    """Set one large budget."""
    with policy_in_force(cluster, budget(cluster, MANY)):
        yield
        for one in cluster.list("DistributedInput"):
            cluster.delete("DistributedInput", one["metadata"]["name"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("reason", ["outbid", "deleted"])
def test_an_input_that_loses_workers_during_pod_creation_frees_the_budget_first(
    cluster: Cluster, operator: Operator, control_plane: Any, large: None, reason: str
) -> None:
    """The ReplicaSet controller creates all pods of its last sync, even if replicas has dropped."""
    first, second = f"free-first-{reason}", f"free-second-{reason}"
    with watch_workers(control_plane, cluster.namespace) as (_, pods):
        cluster.create(manifest(first, workers={"replicas": MANY}))
        eventually(lambda: len(pods.current) > MANY // 4, every=0.01)
        if reason == "deleted":
            cluster.delete("DistributedInput", first)
        cluster.create(manifest(second, workers={"replicas": MANY}, trainers={"priority": 1}))
        expected = MANY if reason == "deleted" else MANY - 1

        def second_has_all() -> bool:
            created = sum(1 for name in pods.current if name.startswith(second))
            return created == expected and len(pods.current) == MANY

        eventually(second_has_all)
    assert len(pods.peak) == MANY, f"at most {len(pods.peak)} pods existed"
