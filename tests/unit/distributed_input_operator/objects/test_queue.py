"""The labels and annotations by which Kueue finds the pods of an input."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.input import ObjectMeta
from distributed_input_operator.objects.queue import queued

QUEUE = {"kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/priority-class": "low"}
GROUP = {"kueue.x-k8s.io/pod-group-name": "run-1"}
COUNT = {"kueue.x-k8s.io/pod-group-total-count": "5", "kueue.x-k8s.io/retriable-in-group": "false"}


def meta_of(component: str, labels: dict[str, str]) -> Any:
    """Return the metadata of a part's pods, if the input also has what they do not get."""
    meta = ObjectMeta(name="digits", labels={**labels, "x": "y"}, annotations={**COUNT, "x": "y"})
    template = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {}}
    return queued(template, meta, component)["metadata"]


@pytest.mark.parametrize("component", [names.DISPATCHER, names.WORKER])
def test_all_pods_of_an_input_in_a_group_get_its_labels_and_annotations(component: str):
    found = meta_of(component, {**QUEUE, **GROUP})
    assert found == {"labels": {"a": "b", **QUEUE, **GROUP}, "annotations": {"c": "d", **COUNT}}


def test_only_workers_wait_in_a_queue_without_a_group():
    worker, dispatcher = (meta_of(one, QUEUE) for one in (names.WORKER, names.DISPATCHER))
    assert worker == {"labels": {"a": "b", **QUEUE}, "annotations": {"c": "d"}}
    assert dispatcher == {"labels": {"a": "b"}, "annotations": {"c": "d"}}
