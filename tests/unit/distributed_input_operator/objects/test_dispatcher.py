"""The objects of the dispatcher."""

from __future__ import annotations

from distributed_input_operator.objects.dispatcher import dispatcher_port
from tests.unit.distributed_input_operator.objects.builders import (
    containers,
    flag,
    objects,
    pod_spec,
)
from tests.unit.distributed_input_operator.snapshots import resource


def test_the_service_has_the_same_port_for_any_port_of_the_process():
    own = objects(dispatcher={"port": 8000})
    args = containers("dispatcher", dispatcher={"port": 8000})["dispatcher"]["args"]
    assert dispatcher_port(resource(dispatcher={"port": 8000})) == 8000
    assert flag(args, "--listen") == ":8000"
    assert own["Service", "digits-dispatcher"]["spec"]["ports"][0]["port"] == 7070
    assert dispatcher_port(resource()) == 7070


def test_a_suspended_input_has_no_dispatcher():
    replicas = [
        objects(suspend=suspend)["Deployment", "digits-dispatcher"]["spec"]["replicas"]
        for suspend in (True, False)
    ]
    assert replicas == [0, 1]


def test_the_process_stops_within_the_grace_period_of_its_pod():
    pod = objects()["Deployment", "digits-dispatcher"]["spec"]["template"]["spec"]
    grace = int(flag(pod["containers"][0]["args"], "--grace-seconds"))
    assert grace < pod["terminationGracePeriodSeconds"]


def test_the_dispatcher_uses_the_sidecars_image():
    assert containers("dispatcher")["dispatcher"]["image"] == "sidecar:1"
    own = containers("dispatcher", dispatcher={"image": "own:2"})
    assert own["dispatcher"]["image"] == "own:2"
    other = containers("dispatcher", sidecar={"image": "own:2"})
    assert other["dispatcher"]["image"] == "sidecar:1", "the sidecars' image is their own"


def test_the_pod_runs_on_the_nodes_and_with_the_priority_of_the_spec():
    plain = pod_spec("dispatcher")
    assert plain["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert "priorityClassName" not in plain
    toleration = {"key": "team", "operator": "Exists"}
    own = pod_spec(
        "dispatcher",
        dispatcher={
            "nodeSelector": {"pool": "system"},
            "tolerations": [toleration],
            "priorityClassName": "input",
        },
    )
    assert own["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
    assert own["tolerations"] == [toleration, *plain["tolerations"]]
    assert own["priorityClassName"] == "input"
