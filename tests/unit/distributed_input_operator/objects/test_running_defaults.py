"""Defaults of running pods during an upgrade of the operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from distributed_input_operator.objects.running_defaults import with_running_defaults
from distributed_input_operator.objects.snapshot import Settings, Snapshot
from tests.unit.distributed_input_operator.objects.builders import objects
from tests.unit.distributed_input_operator.snapshots import SETTINGS, snapshot, template

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
        "workers": template({"volumes": [{"name": "data", "emptyDir": {}}]}, volumeMounts=mounts)
    }
    assert with_running_defaults(upgraded(before=spec, **spec)) == SETTINGS


def test_a_system_that_the_user_selects_stays():
    spec: dict[str, Any] = {"workers": template({"nodeSelector": {"kubernetes.io/os": "talos"}})}
    before = upgraded(SETTINGS, before=spec, **spec)
    assert with_running_defaults(before) == SETTINGS
    pod = before.objects["Deployment", "digits-worker"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "talos"}


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
