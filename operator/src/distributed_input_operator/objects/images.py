"""Which default images an input's pods have: those of the operator that started them. Pure.

An operator of another version has other defaults. That alone is no reason to restart anything: the
pods keep what they have until they are replaced anyway, for a change of the spec, say.
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


def kept(snapshot: Snapshot) -> Settings:
    """The operator's settings, with the default images that the input's running pods have."""
    resource, settings = snapshot.resource, snapshot.settings

    def worker(image: str) -> Manifest:
        made = replace(settings, worker_image=image)
        return worker_objects(resource, made, 1, snapshot.code)[0]

    live = snapshot.live("Deployment", names.worker(snapshot.name))
    # Before the dispatcher's, whose pod may have the workers' image too: for the stock service.
    settings = replace(settings, worker_image=_kept(live, worker) or settings.worker_image)

    def dispatcher(image: str) -> Manifest:
        return dispatcher_objects(resource, replace(settings, sidecar_image=image))[0]

    live = snapshot.live("Deployment", names.dispatcher(snapshot.name))
    return replace(settings, sidecar_image=_kept(live, dispatcher) or settings.sidecar_image)


def _kept(live: Manifest, wanted: Callable[[str], Manifest]) -> str:
    """The default image that the pods have; empty where they have none, or are replaced anyway."""
    spec: dict[str, Any] = live.get("spec") or {}
    annotations = (live.get("metadata") or {}).get("annotations") or {}
    image: str = annotations.get(names.DEFAULT_IMAGE_ANNOTATION, "")
    if not image or not spec.get("replicas"):
        return ""
    same = contains(spec.get("template"), wanted(image)["spec"]["template"])
    return image if same else ""
