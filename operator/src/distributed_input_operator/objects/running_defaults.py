"""The defaults of running pods, which an upgrade of the operator keeps.

An operator of another version has other default images, and an earlier one selected no operating
system. That alone does not restart pods: they keep what they have until something else replaces
them, such as a change of the spec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from distributed_input.api import names
from distributed_input_operator.objects.children import OS_LABEL
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.matching import contains
from distributed_input_operator.objects.snapshot import Manifest, Settings, Snapshot
from distributed_input_operator.objects.worker import worker_objects


def with_running_defaults(snapshot: Snapshot) -> Settings:
    """Return the operator's settings, with the defaults of the input's running pods."""
    resource, name = snapshot.resource, snapshot.name

    def worker(settings: Settings) -> Manifest:
        return worker_objects(resource, settings, 1, snapshot.code)[0]

    def dispatcher(settings: Settings) -> Manifest:
        return dispatcher_objects(resource, settings)[0]

    # The workers' image comes first: with the tf.data service, the dispatcher's pod uses it too.
    live = snapshot.live("Deployment", names.worker(name))
    settings = _running(live, snapshot.settings, names.WORKER, "worker_image", worker)
    live = snapshot.live("Deployment", names.dispatcher(name))
    return _running(live, settings, names.DISPATCHER, "sidecar_image", dispatcher)


def _running(
    live: Manifest,
    settings: Settings,
    component: str,
    image: str,
    desired: Callable[[Settings], Manifest],
) -> Settings:
    """Return the settings with the defaults of a Deployment's pods, if they are to keep them.

    They need not keep them if the Deployment has no replicas, or if another change replaces the
    pods anyway.

    Args:
        live: the Deployment in the cluster; empty if there is none.
        settings: the settings of this operator.
        component: dispatcher or worker.
        image: name of the setting with the default image of its pods.
        desired: returns the desired Deployment for some settings.
    """
    spec: dict[str, Any] = live.get("spec") or {}
    if not spec.get("replicas"):
        return settings
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    template = spec.get("template") or {}
    selector = (template.get("spec") or {}).get("nodeSelector") or {}
    kept = replace(
        settings,
        any_os=settings.any_os if OS_LABEL in selector else settings.any_os | {component},
        **{image: annotations.get(names.DEFAULT_IMAGE_ANNOTATION) or getattr(settings, image)},
    )
    if kept == settings:
        return settings
    return kept if contains(template, desired(kept)["spec"]["template"]) else settings
