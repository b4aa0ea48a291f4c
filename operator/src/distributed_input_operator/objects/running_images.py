"""The default images of running pods, which an upgrade of the operator keeps.

An operator of another version has other default images. That alone does not restart pods: they
keep their images until something else replaces them, such as a change of the spec.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from distributed_input.api import names
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.matching import contains
from distributed_input_operator.objects.snapshot import Manifest, Settings, Snapshot
from distributed_input_operator.objects.worker import worker_objects


def with_running_images(snapshot: Snapshot) -> Settings:
    """Return the operator's settings, with the default images of the input's running pods."""
    resource, settings = snapshot.resource, snapshot.settings

    def worker(image: str) -> Manifest:
        changed = replace(settings, worker_image=image)
        return worker_objects(resource, changed, 1, snapshot.code)[0]

    live = snapshot.live("Deployment", names.worker(snapshot.name))
    # The workers' image comes first: with the tf.data service, the dispatcher's pod uses it too.
    settings = replace(settings, worker_image=_running(live, worker) or settings.worker_image)

    def dispatcher(image: str) -> Manifest:
        return dispatcher_objects(resource, replace(settings, sidecar_image=image))[0]

    live = snapshot.live("Deployment", names.dispatcher(snapshot.name))
    return replace(settings, sidecar_image=_running(live, dispatcher) or settings.sidecar_image)


def _running(live: Manifest, desired: Callable[[str], Manifest]) -> str:
    """Return the default image of a Deployment's pods, or "" if they need not keep it.

    They need not keep it if the Deployment has no replicas, or if another change replaces the pods
    anyway.

    Args:
        live: the Deployment in the cluster; empty if there is none.
        desired: returns the desired Deployment for a default image.
    """
    spec: dict[str, Any] = live.get("spec") or {}
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    image: str = annotations.get(names.DEFAULT_IMAGE_ANNOTATION, "")
    if not image or not spec.get("replicas"):
        return ""
    unchanged = contains(spec.get("template"), desired(image)["spec"]["template"])
    return image if unchanged else ""
