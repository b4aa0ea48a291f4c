"""The observed state of an input."""

from __future__ import annotations

from dataclasses import replace

from distributed_input_operator.objects.snapshot import Pod
from tests.unit.distributed_input_operator.snapshots import snapshot


def test_pods_are_selected_by_component_without_terminating_ones():
    pods = (Pod("d", "dispatcher"), Pod("w", "worker"), Pod("x", "worker", terminating=True))
    found = replace(snapshot(), pods=pods)
    assert [one.name for one in found.of("worker")] == ["w"]
    assert [one.name for one in found.of("dispatcher")] == ["d"]


def test_an_object_that_does_not_exist_is_empty():
    found = replace(snapshot(), objects={("Service", "a"): {"kind": "Service"}})
    assert found.live("Service", "a") == {"kind": "Service"}
    assert found.live("Service", "b") == {}
