"""Defaults of running pods during an upgrade of the operator."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.running_defaults import with_running_defaults
from distributed_input_operator.objects.snapshot import Settings, Snapshot
from distributed_input_operator.objects.worker import worker_objects
from tests.unit.distributed_input_operator.objects.builders import objects
from tests.unit.distributed_input_operator.snapshots import SETTINGS, snapshot

UPGRADED = replace(SETTINGS, worker_image="worker:2", sidecar_image="sidecar:2")


def upgraded(
    settings: Settings = UPGRADED, *, before: Mapping[str, Any] | None = None, **spec: Any
) -> Snapshot:
    """Return a snapshot with the objects of the operator before its upgrade.

    Args:
        settings: the settings of the operator after its upgrade.
        before: the spec of these objects.
        spec: the current spec.
    """
    found = objects(**(before or {}))
    return replace(snapshot(**spec), objects=found, settings=settings, code="code")


def test_running_pods_keep_the_default_images_of_the_operator_before():
    assert with_running_defaults(upgraded()) == SETTINGS


def test_pods_that_mount_a_volume_twice_keep_their_default_image():
    mounts = [
        {"name": "data", "mountPath": "/images", "subPath": "images"},
        {"name": "data", "mountPath": "/labels", "subPath": "labels"},
    ]
    spec: dict[str, Any] = {
        "workers": {"volumes": [{"name": "data", "emptyDir": {}}], "volumeMounts": mounts}
    }
    assert with_running_defaults(upgraded(before=spec, **spec)) == SETTINGS


def without_os(before: Snapshot, *components: str) -> Snapshot:
    """Return a snapshot whose Deployments are those of a release that selected no system."""
    live: Any = copy.deepcopy(dict(before.objects))
    for component in components:
        pod = live["Deployment", f"digits-{component}"]["spec"]["template"]["spec"]
        del pod["nodeSelector"]["kubernetes.io/os"]
    return replace(before, objects=live)


@pytest.mark.parametrize("component", ["worker", "dispatcher"])
def test_running_pods_that_select_no_system_stay_as_they_are(component):
    spec: dict[str, Any] = {"workers": {"nodeSelector": {"pool": "cpu"}}}
    before = without_os(upgraded(SETTINGS, before=spec, **spec), component)
    settings = with_running_defaults(before)
    assert settings == replace(SETTINGS, any_os=frozenset({component}))
    selectors = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"].get("nodeSelector")
        for one in (
            worker_objects(before.resource, settings, 2, "code")[0],
            dispatcher_objects(before.resource, settings)[0],
        )
    }
    linux = {"kubernetes.io/os": "linux"}
    assert selectors == {
        "digits-worker": {"pool": "cpu"} | (linux if component != "worker" else {}),
        "digits-dispatcher": linux if component != "dispatcher" else None,
    }


def test_pods_that_a_change_replaces_select_the_system():
    before = without_os(upgraded(workers={"parallelism": 3}), "worker", "dispatcher")
    assert with_running_defaults(before).any_os == {"dispatcher"}
    moved = without_os(upgraded(workers={"nodeSelector": {"pool": "cpu"}}), "worker")
    assert with_running_defaults(moved).any_os == frozenset()


def test_pods_with_an_image_of_their_own_stay_as_they_are():
    spec: dict[str, Any] = {"workers": {"image": "own:1"}, "sidecar": {"image": "own:2"}}
    before = without_os(upgraded(before=spec, **spec), "worker", "dispatcher")
    assert with_running_defaults(before).any_os == {"worker", "dispatcher"}


def test_a_system_that_the_user_selects_stays():
    spec: dict[str, Any] = {"workers": {"nodeSelector": {"kubernetes.io/os": "talos"}}}
    before = upgraded(SETTINGS, before=spec, **spec)
    assert with_running_defaults(before) == SETTINGS
    template = before.objects["Deployment", "digits-worker"]["spec"]["template"]["spec"]
    assert template["nodeSelector"] == {"kubernetes.io/os": "talos"}


def test_a_new_input_gets_the_new_default_images():
    assert with_running_defaults(replace(snapshot(), settings=UPGRADED)) == UPGRADED


def test_pods_that_a_change_replaces_get_the_new_default_image():
    settings = with_running_defaults(upgraded(workers={"parallelism": 3}))
    assert (settings.worker_image, settings.sidecar_image) == ("worker:2", "sidecar:1")


def test_a_deployment_without_replicas_gets_the_new_default_image():
    before = upgraded()
    live: Any = {key: dict(one) for key, one in before.objects.items()}
    key = ("Deployment", "digits-worker")
    live[key]["spec"] = {**live[key]["spec"], "replicas": 0}
    assert with_running_defaults(replace(before, objects=live)).worker_image == "worker:2"
