"""The observed state of an input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distributed_input_operator.objects.snapshot import Pod, parse_pod
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


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}


def parse(status: dict[str, Any] | None = None, **meta: Any) -> Pod:
    obj: dict[str, Any] = {"metadata": {"name": "p", **meta}}
    return parse_pod(obj if status is None else {**obj, "status": status})


def waiting(reason: str, **more: Any) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": "back-off"}}
    return {"phase": "Running", "containerStatuses": [{"name": "worker", "state": state, **more}]}


def test_a_new_pod_has_no_state():
    pod = parse()
    assert (pod.ip, pod.ready, pod.terminating, pod.unschedulable) == ("", False, False, "")
    assert (pod.failing, pod.deletion_cost) == ("", None)


def test_a_pod_that_is_deleted_or_has_ended_is_terminating():
    assert parse({"phase": "Running"}, deletionTimestamp="2025-01-31T12:00:00Z").terminating
    assert not parse({"phase": "Running"}, deletionTimestamp="2025-01-31T12:00:00Z").ended
    for phase in ("Failed", "Succeeded"):
        assert parse({"phase": phase}).terminating
        assert parse({"phase": phase}).ended
    assert not parse({"phase": "Running"}).terminating


def test_a_scheduling_error_is_reported_only_while_the_pod_is_pending():
    pending = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}
    assert parse(pending).unschedulable == "0/3 nodes are available"
    assert parse({**pending, "phase": "Running"}).unschedulable == ""


def test_an_image_that_cannot_be_pulled_is_a_failure():
    failing = parse(waiting("ImagePullBackOff")).failing
    assert failing == "container worker: ImagePullBackOff: back-off"
    assert parse(waiting("ContainerCreating")).failing == ""


def test_a_container_that_ends_repeatedly_is_reported_with_its_last_line():
    last = {"terminated": {"exitCode": 1, "message": "first\nlast line\n"}}
    status = waiting("CrashLoopBackOff", restartCount=4, lastState=last)
    expected = "container worker ended 4 times, last with exit status 1: last line"
    assert parse(status).failing == expected


def test_an_init_container_that_fails_is_reported_before_the_containers_that_wait_for_it():
    last = {"terminated": {"exitCode": 3, "message": "no such bucket"}}
    (failing,) = waiting("CrashLoopBackOff", restartCount=2, lastState=last)["containerStatuses"]
    status = {
        "phase": "Pending",
        "initContainerStatuses": [{**failing, "name": "fetch"}],
        "containerStatuses": waiting("PodInitializing")["containerStatuses"],
    }
    expected = "container fetch ended 2 times, last with exit status 3: no such bucket"
    assert parse(status).failing == expected
    status["initContainerStatuses"] = waiting("ImagePullBackOff")["containerStatuses"]
    assert parse(status).failing == "container worker: ImagePullBackOff: back-off"


@pytest.mark.parametrize(("text", "cost"), [("-100", -100), ("7", 7), ("high", None), ("", None)])
def test_the_deletion_cost_is_read_from_its_annotation(text, cost):
    pod = parse(annotations={"controller.kubernetes.io/pod-deletion-cost": text})
    assert pod.deletion_cost == cost
