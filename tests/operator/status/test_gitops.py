"""kubectl, Flux and Argo CD see an input as ready only if its latest spec runs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distributed_input_operator.kube.kinds import INPUT
from testing.cluster.binaries import binary
from testing.cluster.control_plane import ControlPlane
from testing.operator.cluster import Cluster
from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.gitops import (
    CURRENT,
    IN_PROGRESS,
    argocd_health,
    kstatus,
    kubectl_sees_ready,
)
from testing.operator.processes import eventually, manifest, run_operator, template
from testing.operator.webhooks import free_port

_LONG = 150.0
"""Rates are averages over 30 s, so changes take longer than the default timeout."""
SUMMARY = ("Ready", "Reconciling", "Stalled")
BAD_WORKERS = template(ports=[{"containerPort": -1}])
NEW_IMAGE = {"spec": {"workers": template(image="mine:2")}}


def stored(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return the input as the API server has it."""
    found = cluster.get(INPUT.kind, name)
    assert found
    return found


def is_true(cluster: Cluster, name: str, kind: str) -> bool:
    """Return whether a condition is True."""
    return cluster.condition(name, kind).get("status") == "True"


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """Return the status that Flux and Argo CD compute."""
    return kstatus(obj), argocd_health(obj)[0]


@contextmanager
def waiting(plane: ControlPlane, cluster: Cluster, name: str) -> Iterator[subprocess.Popen[str]]:
    """Run `kubectl wait` for the condition Ready."""
    command: list[str | Path] = [binary("kubectl"), f"--kubeconfig={plane.kubeconfig}", "wait"]
    command += [f"-n{cluster.namespace}", f"dinput/{name}", "--for=condition=Ready"]
    with subprocess.Popen(
        [*command, "--timeout=60s"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_the_conditions_of_kstatus_always_exist_with_all_fields(cluster, operator, name):
    cluster.create(manifest(name))
    fields = {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}

    def check() -> list[str]:
        found = stored(cluster, name)
        conditions = {one["type"]: one for one in found["status"]["conditions"]}
        assert all(set(conditions[kind]) == fields for kind in SUMMARY)
        assert all(conditions[kind][field] for kind in SUMMARY for field in fields)
        generations = {one["observedGeneration"] for one in conditions.values()}
        assert generations == {found["status"]["observedGeneration"]}
        return [kind for kind in SUMMARY if conditions[kind]["status"] == "True"]

    eventually(lambda: cluster.condition(name, "Unschedulable"))
    assert check() == ["Reconciling"]
    cluster.wait_until_ready(name, 1)
    assert check() == ["Ready"]
    cluster.patch(INPUT.kind, name, {"spec": {"suspend": True}})
    eventually(lambda: cluster.condition(name, "Ready").get("reason") == "Suspended")
    assert check() == []
    cluster.patch(INPUT.kind, name, {"spec": {"suspend": None}})
    cluster.patch(INPUT.kind, name, {"spec": {"workers": BAD_WORKERS}})
    eventually(lambda: is_true(cluster, name, "Stalled"))
    assert check() == ["Stalled"]


def test_nothing_regards_an_input_that_no_operator_has_seen_as_ready(
    cluster, api, namespace, control_plane, tmp_path
):
    alone, name = Cluster(api, namespace), "unseen"
    created = alone.create(manifest(name))
    assert health(created) == health(stored(alone, name)) == (IN_PROGRESS, "Progressing")
    ready = partial(kubectl_sees_ready, control_plane.kubeconfig, namespace, name)
    assert not ready()
    with run_operator(control_plane.kubeconfig, namespace, tmp_path):
        alone.wait_until_ready(name, 1)
    assert health(stored(alone, name)) == (CURRENT, "Healthy")
    assert ready()
    # The operator is away: the status is still that of the first generation.
    changed = alone.patch(INPUT.kind, name, NEW_IMAGE)
    assert health(changed) == (IN_PROGRESS, "Progressing")
    assert not ready()


def test_a_new_image_is_ready_only_when_all_workers_have_it(cluster, control_plane, operator, name):
    cluster.create(manifest(name, workers={"replicas": 2}))
    cluster.wait_until_ready(name, 2)
    seen: list[tuple[str, str]] = []

    def images() -> list[str]:
        seen.append(health(stored(cluster, name)))
        return [pod["spec"]["containers"][0]["image"] for pod in cluster.pods(name)]

    cluster.patch(INPUT.kind, name, NEW_IMAGE)
    with waiting(control_plane, cluster, name) as wait:
        eventually(lambda: "mine:2" in images())
        eventually(lambda: stored(cluster, name)["status"]["observedGeneration"] == 2)
        condition = cluster.condition(name, "Ready")
        assert condition["reason"] in ("WorkersStarting", "Unschedulable")
        assert is_true(cluster, name, "WorkersAvailable")
        assert set(seen) == {(IN_PROGRESS, "Progressing")}
        assert wait.poll() is None
        cluster.wait_until_ready(name, 2)
        assert images() == ["mine:2", "mine:2"]
        assert wait.wait(30) == 0
    assert seen[-1] == (CURRENT, "Healthy")


def test_a_changed_number_of_workers_is_ready_when_all_are(cluster, operator, name):
    cluster.create(manifest(name))
    cluster.wait_until_ready(name, 1)
    cluster.patch(INPUT.kind, name, {"spec": {"replicas": 3}}, "scale")
    eventually(lambda: len(cluster.pods(name)) == 3)
    eventually(lambda: stored(cluster, name)["status"]["observedGeneration"] == 2)
    assert health(stored(cluster, name)) == (IN_PROGRESS, "Progressing")
    cluster.wait_until_ready(name, 3)
    assert health(stored(cluster, name)) == (CURRENT, "Healthy")


@pytest.mark.timeout(600)
def test_autoscaling_does_not_interrupt_ready(cluster, operator, name, tmp_path):
    """The trainer waits 75 % of its time, so more workers start. They do not become ready."""
    port = free_port()
    scaling = {"autoscaling": {"minReplicas": 1, "maxReplicas": 4}}
    cluster.create(manifest(name, dispatcher={"port": port}, workers=scaling))
    with run_dispatcher(port, token_of(cluster, name), tmp_path):
        eventually(lambda: cluster.pods(name))
        cluster.run_pods(name)
        eventually(lambda: is_true(cluster, name, "Ready"))
        since = cluster.condition(name, "Ready")["lastTransitionTime"]
        eventually(lambda: len(cluster.pods(name)) == 4, _LONG)
        eventually(lambda: cluster.condition(name, "Unschedulable"))
        found = stored(cluster, name)
        assert health(found) == (CURRENT, "Healthy")
        assert found["status"]["workers"]["summary"] == "1/4"
        assert cluster.condition(name, "Ready")["lastTransitionTime"] == since
        assert found["status"]["trainers"]["reading"] == 1
        cluster.patch(INPUT.kind, name, {"spec": {"suspend": True}})
        eventually(lambda: cluster.condition(name, "Ready").get("reason") == "Suspended")
        eventually(lambda: stored(cluster, name)["status"]["workers"]["summary"] == "0/0")
        found = stored(cluster, name)
        assert not {"trainers", "autoscaling"} & set(found["status"])
        assert found["status"]["workers"]["ready"] == 0
        assert health(found) == (IN_PROGRESS, "Suspended")
