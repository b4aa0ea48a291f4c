"""What an input requests from budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.objects.snapshot import Pod
from distributed_input_operator.reconcile.claims import existing_request, template_amount
from distributed_input_operator.reconcile.plan import plan_demand
from tests.unit.distributed_input_operator.snapshots import NOW, after, plan, snapshot, template

GIB = 1 << 30


def requested(found):
    """Return what the planner requests."""
    return plan_demand(found, NOW).request


def test_a_request_has_the_workers_the_existing_pods_and_the_stall_cost():
    found = snapshot(
        workers={
            "replicas": 9,
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "worker",
                            "resources": {
                                "requests": {"cpu": "1500m"},
                                "limits": {"memory": "2Gi"},
                            },
                        }
                    ]
                }
            },
        },
        trainers={
            "accelerator": "h100",
            "acceleratorsPerTrainer": 8,
            "weight": "2",
            "priority": 7,
        },
    )
    found = after(found, plan(found, NOW))
    pods = [
        Pod("w-1", "worker"),
        Pod("w-2", "worker", terminating=True),
        Pod("w-3", "worker", terminating=True, ended=True),
        Pod("d", "dispatcher"),
    ]
    request = requested(replace(found, pods=tuple(pods), measured=Measurement(consumers=4)))
    claim = request.claim
    assert (claim.key, request.accelerator, claim.priority) == (("team", "digits"), "h100", 7)
    assert (claim.requested, claim.minimum, claim.replicas, claim.leaving) == (9, 1, 9, 1)
    assert (claim.stall_cost, request.weight) == (8 * 4, 2)
    assert claim.worker_size == (1, 1500, 2 * GIB)


def test_an_input_without_consumers_bids_as_if_it_had_one():
    claim = requested(snapshot(trainers={"acceleratorsPerTrainer": 8})).claim
    assert claim.stall_cost == 8


def test_without_a_measurement_the_last_known_consumers_count():
    written = Status.model_validate({"trainers": {"reading": 4}})
    found = replace(snapshot(trainers={"acceleratorsPerTrainer": 8}), status=written)
    assert requested(found).claim.stall_cost == 32
    assert requested(replace(found, measured=Measurement(consumers=2))).claim.stall_cost == 16


def test_the_need_may_exceed_what_may_start_at_once():
    scaling = {"minReplicas": 1, "maxReplicas": 50}
    reading = Measurement(consumers=1, demand=2000, busy_rate=100)
    found = replace(snapshot(workers={"autoscaling": scaling}), measured=reading)
    claim = requested(found).claim
    assert claim.needed is not None
    assert claim.needed > claim.requested


def test_an_existing_input_requests_what_it_has_in_every_resource():
    found = snapshot(workers={"replicas": 3, **template(resources={"requests": {"cpu": "500m"}})})
    live = after(found, plan(found, NOW)).objects["Deployment", "digits-worker"]
    pods = [Pod(name, "worker", takes=(1, 500, 512 << 20)) for name in "ab"]
    request = existing_request(live, pods, ("team", "digits"), {"team": "a"})
    assert request is not None
    assert (request.claim.replicas, request.claim.leaving, request.labels) == (3, 0, {"team": "a"})
    assert request.incomplete
    assert request.claim.worker_size == template_amount(live)
    assert request.claim.worker_size[1] == 500
    written = {**live, "metadata": {**live["metadata"], "generation": 7}}
    new = existing_request(written, pods, ("team", "digits"), {})
    assert new is not None
    assert new.scaling, "its controller may still create pods for an earlier number"


def test_pods_larger_than_the_template_count_as_excess():
    found = snapshot(workers={"replicas": 2, **template(resources={"requests": {"cpu": "1"}})})
    sizes = [(1, 4000, 512 << 20), (1, 1000, 1 << 30), (1, 4000, 0)]
    pods = [Pod(f"w-{n}", "worker", takes=size) for n, size in enumerate(sizes)]
    assert requested(replace(found, pods=tuple(pods))).claim.excess == (0, 6000, 0)
    assert requested(replace(found, pods=tuple(pods[1:2]))).claim.excess == (0, 0, 512 << 20)


@pytest.mark.parametrize(("updated", "size", "excess"), [(2, 1100, 1100), (1, 1000, 1300)])
def test_pods_that_admission_makes_larger_set_the_worker_size(updated, size, excess):
    found = snapshot(workers={"replicas": 2, **template(resources={"requests": {"cpu": "1"}})})
    objects = dict(after(found, plan(found, NOW)).objects)
    live = objects["Deployment", "digits-worker"]
    status = {"replicas": 2, "updatedReplicas": updated}
    objects["Deployment", "digits-worker"] = {**live, "status": status}
    pods = [Pod(name, "worker", takes=(1, 1100, 0)) for name in "ab"]
    pods.append(Pod("c", "worker", takes=(1, 2100 if updated == 1 else 2200, 0), terminating=True))
    mixed = replace(found, objects=objects, pods=tuple(pods))
    claim = requested(mixed).claim
    assert (claim.worker_size[1], claim.excess[1]) == (size, excess)


@pytest.mark.parametrize(
    ("observed", "counted", "scaling"), [(4, 2, False), (3, 2, True), (4, 1, True), (4, 3, True)]
)
def test_a_deployment_is_scaling_until_its_status_counts_all_pods(observed, counted, scaling):
    found = snapshot(workers={"replicas": 2})
    assert not requested(found).scaling, "there is no Deployment"
    objects = dict(after(found, plan(found, NOW)).objects)
    live = objects["Deployment", "digits-worker"]
    status = {"observedGeneration": observed, "replicas": counted}
    live = {**live, "metadata": {**live["metadata"], "generation": 4}, "status": status}
    objects["Deployment", "digits-worker"] = live
    pods = [Pod("a", "worker"), Pod("b", "worker"), Pod("c", "worker", terminating=True)]
    assert requested(replace(found, objects=objects, pods=tuple(pods))).scaling is scaling


def test_a_deployment_without_a_status_is_scaling():
    found = snapshot(workers={"replicas": 2})
    objects = dict(after(found, plan(found, NOW)).objects)
    live = objects["Deployment", "digits-worker"]
    live = {**live, "metadata": {**live["metadata"], "generation": 1}}
    objects["Deployment", "digits-worker"] = live
    assert requested(replace(found, objects=objects)).scaling, "its pods are about to be created"


def test_a_deleted_input_is_scaling_while_any_pod_keeps_running():
    key, pods = ("team", "digits"), [Pod("a", "worker", terminating=True), Pod("b", "worker")]
    found = [existing_request({}, some, key, None) for some in (pods, pods[:1])]
    assert [one.scaling for one in found if one] == [True, False]


def test_pods_without_a_deployment_count_with_their_own_requests():
    pods = [Pod("a", "worker", takes=(1, 500, 3)), Pod("b", "worker", takes=(1, 250, 4))]
    request = existing_request({}, pods, ("team", "digits"), None)
    assert request is not None
    assert (request.claim.requested, request.claim.leaving, request.labels) == (0, 2, None)
    assert (request.claim.worker_size, request.claim.excess) == ((1, 500, 4), (0, 0, 0))
    assert existing_request({}, [], ("team", "digits"), None) is None


def test_the_minimum_of_autoscaling_is_the_minimum_of_the_claim():
    scaling = {"minReplicas": 3, "maxReplicas": 9}
    claim = requested(snapshot(workers={"autoscaling": scaling})).claim
    assert (claim.requested, claim.minimum) == (3, 3)
    assert requested(snapshot(workers={"replicas": 0})).claim.minimum == 0


@pytest.mark.parametrize(("memory", "counted"), [("1e9", 10**9), ("lots", 0)])
def test_a_pod_template_counts_and_an_unreadable_quantity_in_it_counts_as_nothing(memory, counted):
    """The input is still reconciled: the API server refuses such pods, with a better message."""
    side = {
        "name": "side",
        "resources": {"requests": {"memory": memory}},
        "restartPolicy": "Always",
    }
    found = snapshot(workers=template({"initContainers": [side]}))
    assert requested(found).claim.worker_size == (1, 250, 512 * (1 << 20) + counted)


@pytest.mark.parametrize("wrong", [{"resources": ["cpu"]}, {"resources": {"requests": "all"}}])
def test_a_pod_template_of_another_shape_is_left_to_the_api_server(wrong):
    shapes: tuple[Any, ...] = ([{"name": "s", **wrong}], {}, "none")
    for found in shapes:
        odd = snapshot(workers=template({"initContainers": found}))
        assert requested(odd).claim.worker_size == (1, 250, 512 * (1 << 20))


def test_the_dispatcher_counts_from_its_start_to_its_end():
    spec = {"dispatcher": {"resources": {"requests": {"cpu": "2"}}}}
    new = requested(snapshot(**spec)).claim
    assert (new.started, new.dispatcher[:2]) == (False, (0, 2000))
    pod = Pod("d", "dispatcher", takes=(1, 3000, 0), terminating=True)
    stopping = requested(replace(snapshot(suspend=True, **spec), pods=(pod,))).claim
    assert (stopping.started, stopping.dispatcher[:2]) == (True, (0, 3000))
    stopped = requested(snapshot(suspend=True, **spec)).claim
    assert (stopped.started, stopped.dispatcher) == (False, (0, 0, 0))
    left = existing_request({}, [pod], ("team", "digits"), None)
    assert left is not None
    assert (left.claim.dispatcher, left.claim.leaving) == ((0, 3000, 0), 0)


def test_a_dispatcher_that_requests_nothing_has_started_too():
    """Otherwise a used-up budget would stop it after each change of the leader."""
    spec = {"dispatcher": {"resources": {"requests": {"cpu": "0", "memory": "0"}}}}
    found = snapshot(**spec)
    assert not requested(found).claim.started
    found = after(found, plan(found, NOW))
    claim = requested(found).claim
    assert (claim.started, claim.dispatcher) == (True, (0, 0, 0))
    live = found.objects["Deployment", "digits-dispatcher"]
    existing = existing_request({}, [], ("team", "digits"), {}, live)
    assert existing is not None
    assert existing.claim.started


def test_resources_of_the_policy_count():
    gpus = {"requests": {"nvidia.com/gpu": "2"}}
    found = snapshot(
        workers={"template": {"spec": {"containers": [{"name": "worker", "resources": gpus}]}}}
    )
    settings = replace(found.settings, resources=("nvidia.com/gpu",))
    pods = (Pod("a", "worker", takes=(1, 250, 512 << 20, 5)),)
    claim = requested(replace(found, settings=settings, pods=pods)).claim
    assert (claim.worker_size[3], claim.excess[3], claim.dispatcher[3]) == (2, 3, 0)
