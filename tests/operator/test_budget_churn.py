"""Inputs come, go and change, operators die: at no moment more workers than the budgets allow.

Not sampled: a watch tells every state that there was, in its order.
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
from testing.operator.cluster import Cluster, Refused
from testing.operator.policies import apply
from testing.operator.processes import Operator, eventually, manifest

ALL, TEAM = 12, 5
_CHANGES, _ROUNDS = 25, 4
_INPUTS = 10
_WORKERS = "app.kubernetes.io/component=worker"


class Watched(threading.Thread):
    """Objects of one list, and how much they weighed together at most.

    Attributes: `there`, what each weighs now; `events`, how many were told; `most` and `team`, the
    worst moments, of all and of the team's: names and weights.
    """

    def __init__(self, listing: Any, namespace: str, weight: Callable[[Any], int]) -> None:
        super().__init__(daemon=True)
        self._listing, self._namespace, self._weight = listing, namespace, weight
        self._stopped = False
        self.there: dict[str, int] = {}
        self.events = 0
        self.most: dict[str, int] = {}
        self.team: dict[str, int] = {}

    def run(self) -> None:
        try:
            for event in watch.Watch().stream(
                self._listing, self._namespace, label_selector=_WORKERS, timeout_seconds=300
            ):
                self._told(event["object"], gone=event["type"] == "DELETED")
        except HTTPError:
            if not self._stopped:  # or the API server has ended
                raise

    def _told(self, obj: Any, *, gone: bool) -> None:
        there = {name: n for name, n in self.there.items() if name != obj.metadata.name}
        if not gone:
            there[obj.metadata.name] = self._weight(obj)
        team = {name: n for name, n in there.items() if name.startswith("team-")}
        self.most = max(self.most, there, key=lambda one: sum(one.values()))
        self.team = max(self.team, team, key=lambda one: sum(one.values()))
        self.there = there
        self.events += 1

    def stop(self) -> None:
        """What goes wrong from now on is nobody's concern."""
        self._stopped = True


@contextmanager
def watched(control_plane: Any, namespace: str) -> Iterator[tuple[Watched, Watched]]:
    """What the workers' Deployments ask for, and the worker pods that there are."""
    with control_plane.client() as api:
        apps: Any = kubernetes.AppsV1Api(api)
        core: Any = kubernetes.CoreV1Api(api)
        asked = Watched(
            apps.list_namespaced_deployment, namespace, lambda one: int(one.spec.replicas)
        )
        pods = Watched(core.list_namespaced_pod, namespace, lambda _: 1)
        for one in (asked, pods):
            one.start()
        try:
            yield asked, pods
        finally:
            for one in (asked, pods):
                one.stop()


class Churn:
    """Users who cannot make up their minds."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._chance = cluster, random.Random(seed)
        self.inputs: dict[str, int] = {}
        self._made = 0

    def change(self) -> None:
        """One change of one input."""
        choices = [self._create] if not self.inputs else [self._delete, self._resize, self._bid]
        choices += [self._create] * (len(self.inputs) < _INPUTS)
        self._chance.choice(choices)()

    def ask_for_all(self) -> None:
        """Ask for more workers than each budget has, the team first."""
        for name, count, priority in (("team-last", TEAM + 1, 10), ("free-last", ALL, 9)):
            made = manifest(name, workers={"replicas": count}, trainers={"priority": priority})
            made["metadata"]["labels"] = {"team": "a"} if name == "team-last" else {}
            self._cluster.create(made)
            self.inputs[name] = count

    def _create(self) -> None:
        self._made += 1
        team = self._chance.random() < 0.5
        name = f"{'team' if team else 'free'}-{self._made}"
        count = self._chance.randint(1, 6)
        made = manifest(name, workers={"replicas": count})
        made["metadata"]["labels"] = {"team": "a"} if team else {}
        self._cluster.create(made)
        self.inputs[name] = count

    def _delete(self) -> None:
        name = self._any()
        del self.inputs[name]
        self._cluster.delete("DistributedInput", name)

    def _resize(self) -> None:
        name = self._any()
        self.inputs[name] = count = self._chance.randint(0, 8)
        self._patch(name, workers={"replicas": count})

    def _bid(self) -> None:
        weight, priority = self._chance.choice([0.1, 1, 10]), self._chance.randint(0, 2)
        self._patch(self._any(), trainers={"weight": weight, "priority": priority})

    def _any(self) -> str:
        return self._chance.choice(sorted(self.inputs))

    def _patch(self, name: str, **spec: Any) -> None:
        self._cluster.patch("DistributedInput", name, {"spec": spec})

    def granted(self) -> int:
        """Workers that all inputs together get in the end."""
        team = sum(count for name, count in self.inputs.items() if name.startswith("team-"))
        return min(ALL, min(TEAM, team) + sum(self.inputs.values()) - team)


@pytest.fixture
def budgets(cluster: Cluster) -> Iterator[None]:
    """One for all, and a smaller one for a team's inputs."""
    apply(
        cluster,
        {"name": "all", "namespaces": [cluster.namespace], "limits": {"workers": ALL}},
        {"name": "team", "selector": {"team": "a"}, "limits": {"workers": TEAM}},
    )
    path = POLICY.path(None, "cluster")
    eventually(lambda: cluster.call("GET", path).get("status"))  # it is in force
    yield
    try:
        cluster.call("DELETE", POLICY.path(None, "cluster"))
    except Refused:
        pass


def used(one: Watched) -> tuple[int, int]:
    """Workers that there are, and those of the team."""
    team = sum(count for name, count in one.there.items() if name.startswith("team-"))
    return sum(one.there.values()), team


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1])
def test_no_budget_is_exceeded_at_any_moment(
    cluster: Cluster, operator: Operator, control_plane: Any, budgets: None, seed: int
) -> None:
    churn = Churn(cluster, seed)
    with watched(control_plane, cluster.namespace) as (asked, pods):
        for number in range(_ROUNDS):
            for _ in range(_CHANGES):
                churn.change()
            if number == 1:
                operator.restart()  # and what changes until it leads again is there when it comes
                for _ in range(_CHANGES):
                    churn.change()
                operator.wait_until_leading()
            eventually(lambda: sum(asked.there.values()) == churn.granted())
            eventually(lambda: sum(pods.there.values()) == churn.granted())
        # On a busy machine the operator may have missed the moments when a budget was used up.
        churn.ask_for_all()
        for one in (asked, pods):
            eventually(lambda one=one: used(one) == (ALL, TEAM))
        for name in churn.inputs:
            cluster.delete("DistributedInput", name)
        eventually(lambda: not sum(pods.there.values()))
    for one in (asked, pods):
        assert one.events > 10 * _ROUNDS
        assert sum(one.most.values()) == ALL, f"never more, and so many at some time: {one.most}"
        assert sum(one.team.values()) == TEAM, one.team


MANY = 100
"""More than the controller-manager makes at once: 30, and then 20 a second."""


@pytest.fixture
def large(cluster: Cluster) -> Iterator[None]:
    """One budget, of many."""
    apply(cluster, {"name": "all", "namespaces": [cluster.namespace], "limits": {"workers": MANY}})
    yield
    for one in cluster.list("DistributedInput"):
        cluster.delete("DistributedInput", one["metadata"]["name"])
    cluster.call("DELETE", POLICY.path(None, "cluster"))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("how", ["outbid", "deleted"])
def test_who_gives_way_while_its_pods_are_still_being_made_gives_way_first(
    cluster: Cluster, operator: Operator, control_plane: Any, large: None, how: str
) -> None:
    """The ReplicaSet's controller makes all that it has begun to make, whatever is wanted since."""
    first, second = f"free-first-{how}", f"free-second-{how}"
    with watched(control_plane, cluster.namespace) as (_, pods):
        cluster.create(manifest(first, workers={"replicas": MANY}))
        eventually(lambda: len(pods.there) > MANY // 4, every=0.01)
        if how == "deleted":
            cluster.delete("DistributedInput", first)
        cluster.create(manifest(second, workers={"replicas": MANY}, trainers={"priority": 1}))
        theirs = MANY if how == "deleted" else MANY - 1

        def through() -> bool:
            made = sum(1 for name in pods.there if name.startswith(second))
            return made == theirs and len(pods.there) == MANY

        eventually(through)
    assert len(pods.most) == MANY, f"{len(pods.most)} pods at some time"
