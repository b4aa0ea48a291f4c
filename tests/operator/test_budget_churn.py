"""Inputs come, go and change, operators die: at no moment more workers than the budgets allow.

Not sampled: a watch tells every state that there was, in its order.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes import client as kubernetes
from kubernetes import watch

from distributed_input_operator.kinds import POLICY
from tests.operator.budgeting import apply
from tests.operator.cluster import Cluster, Refused
from tests.operator.running import Operator, eventually, manifest

ALL, TEAM = 12, 5
_CHANGES, _ROUNDS = 25, 4
_INPUTS = 10
_WORKERS = "app.kubernetes.io/component=worker"


class Watched(threading.Thread):
    """Objects of one list, and after each event the sum of what they weigh."""

    def __init__(self, listing: Any, namespace: str, weight: Callable[[Any], int]) -> None:
        super().__init__(daemon=True)
        self._listing, self._namespace, self._weight = listing, namespace, weight
        self._watch = watch.Watch()
        self.there: dict[str, int] = {}
        self.sums: dict[str, list[int]] = {"": [0], "team-": [0]}
        """By the beginning of the objects' names."""

    def run(self) -> None:
        for event in self._watch.stream(
            self._listing, self._namespace, label_selector=_WORKERS, timeout_seconds=300
        ):
            obj = event["object"]
            self.there[obj.metadata.name] = 0 if event["type"] == "DELETED" else self._weight(obj)
            for begin, sums in self.sums.items():
                sums.append(sum(n for name, n in self.there.items() if name.startswith(begin)))

    def stop(self) -> None:
        """Once another event has come, or the time is over."""
        self._watch.stop()


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
    yield
    try:
        cluster.call("DELETE", POLICY.path(None, "cluster"))
    except Refused:
        pass


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
            print(number, "changed", time.monotonic(), flush=True)
            eventually(lambda: sum(asked.there.values()) == churn.granted())
            print(number, "asked", time.monotonic(), dict(asked.there), churn.inputs, flush=True)
            eventually(lambda: sum(pods.there.values()) == churn.granted())
        for name in churn.inputs:
            cluster.delete("DistributedInput", name)
        eventually(lambda: not sum(pods.there.values()))
    for one in (asked, pods):
        assert len(one.sums[""]) > 10 * _ROUNDS
        assert max(one.sums[""]) == ALL, "never more, and so many at some time"
        assert max(one.sums["team-"]) == TEAM
