"""The labels and annotations by which Kueue finds the pods of an input.

Kueue admits pods with a queue one by one, and pods of a group together or not at all. It deletes
each pod above the number of a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import ObjectMeta


def is_in_group(meta: ObjectMeta) -> bool:
    """Return whether the pods of an input are admitted in a group."""
    return names.POD_GROUP_LABEL in meta.labels


def queue_labels(meta: ObjectMeta, component: str) -> dict[str, str]:
    """Return the labels of an input that its pods get.

    A dispatcher outside of a group starts without a queue: without it, workers and trainers wait.

    Args:
        meta: of the input.
        component: dispatcher or worker.
    """
    if component == names.DISPATCHER and not is_in_group(meta):
        return {}
    kept = (*names.QUEUE_LABELS, names.POD_GROUP_LABEL)
    return {key: meta.labels[key] for key in kept if key in meta.labels}


def group_annotations(meta: ObjectMeta) -> dict[str, str]:
    """Return the annotations of an input that its pods get, if they are in a group."""
    kept = names.POD_GROUP_ANNOTATIONS if is_in_group(meta) else ()
    return {key: meta.annotations[key] for key in kept if key in meta.annotations}


def queued(template: Mapping[str, Any], meta: ObjectMeta, component: str) -> dict[str, Any]:
    """Return a pod template with what its pods get from the input."""
    metadata = template["metadata"]
    labels = metadata["labels"] | queue_labels(meta, component)
    annotations = metadata["annotations"] | group_annotations(meta)
    return {**template, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
