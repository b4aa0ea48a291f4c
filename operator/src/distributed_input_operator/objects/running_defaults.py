"""The default images of running pods, which an upgrade of the operator keeps.

An operator of another version has other default images. That alone does not restart pods: they keep
what they have until something else replaces them, such as a change of the spec.
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


def with_running_defaults(snapshot: Snapshot) -> Settings:
    """Return the operator's settings, with the defaults of the input's running pods."""
    resource, name = snapshot.resource, snapshot.name

    def worker(settings: Settings) -> Manifest:
        return worker_objects(resource, settings, 1, snapshot.code)[0]

    def dispatcher(settings: Settings) -> Manifest:
        return dispatcher_objects(resource, settings)[0]

    # The workers' image comes first: with the tf.data service, the dispatcher's pod uses it too.
    live = snapshot.live("Deployment", names.worker(name))
    settings = _running(live, snapshot.settings, "worker_image", worker)
    live = snapshot.live("Deployment", names.dispatcher(name))
    return _running(live, settings, "sidecar_image", dispatcher)


def _running(
    live: Manifest,
    settings: Settings,
    image: str,
    desired: Callable[[Settings], Manifest],
) -> Settings:
    """Return the settings with the default image of a Deployment's pods, if they are to keep it.

    They need not keep it if the Deployment has no replicas, or if another change replaces the pods
    anyway.

    Args:
        live: the Deployment in the cluster; empty if there is none.
        settings: the settings of this operator.
        image: name of the setting with the default image of its pods.
        desired: returns the desired Deployment for some settings.
    """
    spec: dict[str, Any] = live.get("spec") or {}
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    found = annotations.get(names.DEFAULT_IMAGE_ANNOTATION)
    if not spec.get("replicas") or found in (None, getattr(settings, image)):
        return settings
    kept = replace(settings, **{image: found})
    return kept if contains(spec.get("template"), desired(kept)["spec"]["template"]) else settings
