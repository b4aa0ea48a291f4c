"""Laws of the planner: idempotent, converges at once, repairs drift, stays within bounds.

This module is long because a plan has many rules, each with its own test.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import timestamps
from distributed_input.api.resource.policy import UNLIMITED, Budget
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.decision import LOCAL_START_SECONDS
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.budget.allocation import allocate
from distributed_input_operator.budget.claim import Claim, Grant
from distributed_input_operator.objects.shared import CREATED_ONCE
from distributed_input_operator.objects.snapshot import Pod, Settings, Snapshot
from distributed_input_operator.reconcile.plan import Plan, plan_demand
from distributed_input_operator.reconcile.status import input_status
from distributed_input_operator.reconcile.template_changes import input_hash
from tests.unit.distributed_input_operator.reconcile.strategies import measurements, specs
from tests.unit.distributed_input_operator.snapshots import (
    NOW,
    after,
    plan,
    ready,
    resource,
    snapshot,
    template,
)


@given(specs, measurements)
def test_an_applied_plan_leaves_nothing_to_apply(spec, measured):
    new = replace(snapshot(**spec), measured=measured)
    first = plan(new, NOW)
    assert len(first.objects) == 8
    assert plan(after(new, first), NOW).objects == ()


@given(specs, st.data())
def test_drift_is_repaired_and_nothing_else_is_written(spec, data):
    new = snapshot(**spec)
    settled = after(new, plan(new, NOW))
    objects = {key: copy.deepcopy(dict(one)) for key, one in settled.objects.items()}
    key = data.draw(st.sampled_from(sorted(objects)))
    # An object that is created once is not repaired: the operator may not change it.
    if data.draw(st.booleans(), "deleted") or key[0] in CREATED_ONCE:
        del objects[key]
    else:
        del objects[key]["metadata"]["ownerReferences"]
    planned = plan(replace(settled, objects=objects), NOW)
    assert [(one["kind"], one["metadata"]["name"]) for one in planned.objects] == [key]


@given(specs, measurements)
def test_the_spec_sets_the_number_of_workers_or_its_bounds(spec, measured):
    planned = plan(replace(snapshot(**spec), measured=measured), NOW)
    given = spec.get("workers", {})
    if spec.get("suspend"):
        assert planned.desired == 0
    elif "autoscaling" in given:
        bounds = given["autoscaling"]
        assert bounds["minReplicas"] <= planned.desired <= bounds["maxReplicas"]
    else:
        assert planned.desired == given.get("replicas", 1)


def test_the_workers_with_the_fewest_open_splits_are_removed_first():
    new = snapshot(workers={"replicas": 1})
    busy = Measurement(consumers=1, streams={"10.0.0.1": 5, "10.0.0.2": 0, "10.0.0.3": 3})
    pods = tuple(
        Pod(f"w{n}", "worker", ip=f"10.0.0.{n}", ready=True, deletion_cost=cost)
        for n, cost in ((1, None), (2, -1000), (3, None))
    )
    deployment = {"spec": {"replicas": 3, "template": {"spec": {}}}}
    crowd = replace(
        new, pods=pods, measured=busy, objects={("Deployment", "digits-worker"): deployment}
    )
    assert plan(crowd, NOW).costs == (("w3", -1000),)  # w2 has its cost already.
    assert (
        plan(replace(crowd, resource=resource(suspend=True)), NOW).costs == ()
    )  # All are removed.


def test_workers_that_are_not_ready_need_no_deletion_cost():
    found = snapshot(workers={"replicas": 1})
    pods = (
        Pod("w1", "worker", ip="10.0.0.1", ready=True),
        Pod("w2", "worker", ip="10.0.0.2", ready=True),
        Pod("w3", "worker"),
        Pod("w4", "worker", deletion_cost=-1000),
    )
    deployment = {"spec": {"replicas": 4, "template": {"spec": {}}}}
    objects = {("Deployment", "digits-worker"): deployment}
    fewer = plan(replace(found, pods=pods, objects=objects), NOW)
    assert [cost for _, cost in fewer.costs] == [-1000]
    assert fewer.costs[0][0] in ("w1", "w2")


@pytest.mark.parametrize(
    ("replicas", "desired", "costs"),
    [
        (3, 3, (("w1", 0), ("w2", 0))),  # The scale-down was cancelled.
        (1, 3, (("w1", 0), ("w2", 0))),  # The number was written, but no pod was deleted.
        (1, 1, ()),  # The chosen pods are about to be deleted.
        (3, 2, (("w1", 0),)),
    ],
)
def test_workers_that_stay_after_all_lose_their_deletion_cost(replicas, desired, costs):
    new = snapshot(workers={"replicas": desired})
    streams = {"10.0.0.1": 9, "10.0.0.2": 0, "10.0.0.3": 3}
    pods = tuple(
        Pod(f"w{n}", "worker", ip=f"10.0.0.{n}", ready=True, deletion_cost=cost)
        for n, cost in ((1, -1000), (2, -1000), (3, None))
    )
    deployment = {"spec": {"replicas": replicas, "template": {"spec": {}}}}
    found = replace(
        new,
        pods=pods,
        measured=Measurement(consumers=1, streams=streams),
        objects={("Deployment", "digits-worker"): deployment},
    )
    assert plan(found, NOW).costs == costs


def test_a_field_removed_from_the_spec_is_removed_from_the_child():
    before = snapshot(workers=template({"nodeSelector": {"disk": "fast"}}))
    applied = after(before, plan(before, NOW))
    planned = plan(replace(applied, resource=resource()), NOW)
    assert [(one["kind"], one["metadata"]["name"]) for one in planned.objects] == [
        ("Deployment", "digits-worker")
    ]


def test_a_changed_dataset_or_code_replaces_the_workers_but_a_changed_number_does_not():
    def workers_template(new: Snapshot) -> Any:
        found = plan(new, NOW).objects
        (one,) = [
            o
            for o in found
            if o["metadata"]["name"] == "digits-worker" and "apps" in o["apiVersion"]
        ]
        return one["spec"]["template"]

    dataset = {"type": "EntryPoint", "entryPoint": {"function": "a:b"}}
    other = {"type": "EntryPoint", "entryPoint": {"function": "a:b", "args": {"x": 1}}}
    before = workers_template(snapshot(dataset=dataset))
    assert workers_template(snapshot(dataset=dataset, workers={"replicas": 9})) == before
    assert workers_template(snapshot(dataset=other)) != before
    assert workers_template(replace(snapshot(dataset=dataset), code="other")) != before


NEWER = Settings("worker:2", "sidecar:2", "operators")


def images(planned: Plan) -> dict[str, str]:
    """Return the image of each applied Deployment, by its name."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["image"]
        for one in planned.objects
        if one["kind"] == "Deployment"
    }


def upgraded(**spec: Any) -> Snapshot:
    """Return an input that runs, under an operator with other default images."""
    new = snapshot(**spec)
    return replace(after(new, plan(new, NOW)), settings=NEWER)


@given(specs)
def test_other_default_images_alone_restart_nothing(spec):
    workers = {key: one for key, one in spec.get("workers", {}).items() if key != "autoscaling"}
    spec = {**spec, "suspend": False, "workers": {**workers, "replicas": 2}}
    assert plan(upgraded(**spec), NOW).objects == ()


TWO_MOUNTS = [{"name": "data", "mountPath": path, "subPath": path[1:]} for path in ("/a", "/b")]


@pytest.mark.parametrize(
    "workers",
    [
        template({"volumes": [{"name": "data", "emptyDir": {}}]}, volumeMounts=TWO_MOUNTS),
        template({"nodeSelector": {"kubernetes.io/os": "talos"}}),
    ],
)
def test_other_default_images_keep_pods_with_fields_of_the_user(workers):
    assert plan(upgraded(workers=workers), NOW).objects == ()


def test_other_default_images_come_with_the_next_change_of_the_pods():
    before = upgraded(dataset={"type": "EntryPoint", "entryPoint": {"function": "a:b"}})
    more = replace(
        before,
        resource=resource(
            dataset={"type": "EntryPoint", "entryPoint": {"function": "a:b"}},
            workers={"replicas": 5},
        ),
    )
    assert images(plan(more, NOW)) == {"digits-worker": "worker:1"}
    other = replace(
        before, resource=resource(dataset={"type": "EntryPoint", "entryPoint": {"function": "a:c"}})
    )
    assert images(plan(other, NOW)) == {"digits-worker": "worker:2"}
    assert plan(after(other, plan(other, NOW)), NOW).objects == ()


def test_a_suspended_input_gets_the_other_default_images_at_once():
    assert images(plan(upgraded(suspend=True), NOW)) == {
        "digits-dispatcher": "sidecar:2",
        "digits-worker": "worker:2",
    }


def test_an_image_removed_from_the_spec_is_replaced_by_the_current_default():
    before = upgraded(workers=template(image="mine:1"), dispatcher={"image": "mine:2"})
    assert images(plan(replace(before, resource=resource()), NOW)) == {
        "digits-dispatcher": "sidecar:2",
        "digits-worker": "worker:2",
    }


def test_an_image_that_another_client_set_is_not_kept_as_the_default():
    before = upgraded()
    objects = copy.deepcopy(dict(before.objects))
    live: Any = objects["Deployment", "digits-dispatcher"]
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "theirs:1"
    planned = plan(replace(before, objects=objects), NOW)
    assert images(planned) == {"digits-dispatcher": "sidecar:2"}


def test_another_dispatcher_port_leaves_the_port_of_its_service():
    new = snapshot()
    applied = after(new, plan(new, NOW))
    planned = plan(replace(applied, resource=resource(dispatcher={"port": 8000})), NOW)
    assert sorted((one["kind"], one["metadata"]["name"]) for one in planned.objects) == [
        ("Deployment", "digits-dispatcher"),
        ("NetworkPolicy", "digits-distributed-input"),
    ]
    service: Any = applied.objects["Service", "digits-dispatcher"]
    port = service["spec"]["ports"][0]
    assert (port["port"], port["targetPort"]) == (7070, "grpc")
    container = planned.objects[1]["spec"]["template"]["spec"]["containers"][0]
    assert container["ports"][0] == {"name": "grpc", "containerPort": 8000}


def test_the_network_policy_admits_only_own_trainers_unless_it_is_off():
    def ingress(**spec: Any) -> Any:
        planned = plan(snapshot(**spec), NOW).objects
        (found,) = [one for one in planned if one["kind"] == "NetworkPolicy"]
        return found["spec"]["ingress"]

    own, operator, _ = ingress()
    assert own["from"]
    (peer,) = operator["from"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "operators"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "operator"}
    open_to_all = ingress(networkPolicy="Open")[0]
    assert open_to_all == {"ports": own["ports"]}


def test_the_operators_pull_settings_apply_to_its_default_images():
    def pods(**spec: Any) -> list[Any]:
        settings = replace(snapshot().settings, pull_policy="Always", pull_secrets=("registry",))
        planned = plan(replace(snapshot(**spec), settings=settings), NOW).objects
        found = [one["spec"]["template"]["spec"] for one in planned if one["kind"] == "Deployment"]
        assert all(pod["imagePullSecrets"] == [{"name": "registry"}] for pod in found)
        return [pod["containers"][0].get("imagePullPolicy") for pod in found]

    assert pods() == ["Always", "Always"]
    # Kubernetes chooses the pull policy of a user's image by its tag.
    assert pods(workers=template(image="mine:latest"), dispatcher={"image": "other:1"}) == [
        None,
        None,
    ]


def test_the_grant_sets_the_replicas_of_the_workers_deployment():
    planned = plan(snapshot(workers={"replicas": 9}), NOW, Grant(3, 3, "research", "spent"))
    (deployment,) = (
        one
        for one in planned.objects
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "digits-worker"
    )
    assert deployment["spec"]["replicas"] == 3
    assert (planned.desired, planned.requested) == (3, 9)


def test_a_plan_changes_neither_its_demand_nor_its_snapshot():
    found = snapshot(workers={"replicas": 9})
    demand = plan_demand(found, NOW)
    before = copy.deepcopy(demand)
    plan(found, NOW, Grant(3, 3))
    assert plan_demand(found, NOW) == before == demand


def labelled(found: Snapshot, **labels: str) -> Snapshot:
    kueue = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}
    meta = found.resource.metadata.model_copy(update={"labels": {**kueue, "mine": "x"}})
    return replace(found, resource=found.resource.model_copy(update={"metadata": meta}))


def test_queue_labels_are_put_on_worker_pods():
    for one in plan(labelled(snapshot(workers={"replicas": 1}), queue_name="team-queue")).objects:
        if one["kind"] == "Deployment":
            labels = one["spec"]["template"]["metadata"]["labels"]
            worker = one["metadata"]["name"] == "digits-worker"
            assert labels.get("kueue.x-k8s.io/queue-name") == ("team-queue" if worker else None)
            assert "mine" not in labels


@pytest.mark.parametrize("component", ["dispatcher", "worker"])
def test_another_group_of_pods_is_a_change_by_the_user(component: str):
    found = [labelled(snapshot(), pod_group_name=one) for one in ("run-1", "run-2")]
    assert input_hash(found[0], component) != input_hash(found[1], component)


TTL = 60
NO_CONSUMER, ONE_CONSUMER = Measurement(consumers=0), Measurement(consumers=1)


def idle(since: float, desired: int = 0, **more: Any) -> Snapshot:
    """Return an input as a new leader reads it: its status has the start of its idle time."""
    scaling = {"minReplicas": 2, "maxReplicas": 9, "idleTTLSeconds": TTL, **more}
    found = snapshot(workers={"autoscaling": scaling})
    status = {
        "conditions": [ready()],
        "selector": "component=worker",
        "workers": {"requested": desired},
        "autoscaling": {"idleSince": timestamps.to_text(since)},
    }
    found = replace(found, status=Status.model_validate(status))
    return after(found, plan(found, NOW))


def later(found: Snapshot, measured: Measurement | None, seconds: float = 0.0) -> Plan:
    """Return the plan `seconds` later."""
    return plan(replace(found, measured=measured), NOW + seconds)


@pytest.mark.parametrize(
    ("measured", "workers"),
    [(None, 0), (NO_CONSUMER, 0), (ONE_CONSUMER, 8)],
    ids=["silent", "none", "one"],
)
def test_a_new_leader_keeps_an_input_idle_until_a_trainer_reads(measured, workers):
    assert later(idle(NOW - 1000), measured).desired == workers


def test_an_input_that_was_invalid_at_first_begins_with_its_minimum():
    """Its status has conditions, but nothing of workers."""
    found = idle(NOW, paused=True)
    invalid = {"conditions": found.status.model_dump(by_alias=True)["conditions"]}
    found = replace(found, status=Status.model_validate(invalid), scaled=None)
    assert plan(found, NOW).desired == 2


@pytest.mark.parametrize(("measured", "workers"), [(None, 5), (NO_CONSUMER, 0), (ONE_CONSUMER, 5)])
def test_a_new_leader_continues_the_idle_time_and_needs_an_answer(measured, workers):
    found = idle(NOW - TTL + 10, desired=5)
    assert later(found, measured, 9).desired == 5
    assert later(found, measured, 11).desired == workers


def test_the_status_is_not_written_while_an_input_stays_idle():
    found = replace(idle(NOW - 1000), measured=NO_CONSUMER)
    first = input_status(found, plan(found), [], NOW)
    assert first is not None
    found = replace(found, status=Status.model_validate(first), scaled=None)
    for seconds in (30, 300, 9000):
        assert input_status(found, plan(found, NOW + seconds), [], NOW + seconds) is None


def test_an_idle_input_stays_idle_while_autoscaling_is_paused():
    found = idle(NOW - 1000, paused=True)
    planned = later(found, ONE_CONSUMER)
    assert planned.desired == 0
    assert planned.decision
    assert planned.decision.reason == "Paused"
    assert later(idle(NOW - 1000), ONE_CONSUMER).desired == 8


def test_an_input_without_autoscaling_is_never_idle():
    found = replace(snapshot(workers={"replicas": 3}), measured=NO_CONSUMER)
    planned = plan(found, NOW + 1e6)
    assert (planned.desired, planned.decision) == (3, None)


def test_an_input_that_returns_from_idle_gets_its_minimum_of_a_used_up_budget():
    request = plan_demand(replace(idle(NOW - 1000), measured=ONE_CONSUMER), NOW).request
    budgets = {"all": Budget("all", (6, UNLIMITED, UNLIMITED))}
    back = replace(request.claim, budgets=("all",))
    other = Claim(("t", "other"), 6, 1, 6, 6, priority=9, budgets=("all",))
    grants = allocate(budgets, [back, other])
    assert (grants[back.key].target, grants[other.key].target) == (2, 4)
    assert grants[back.key].workers == 0, "until the pods of the other have terminated"


def test_a_new_leader_waits_as_long_for_own_workers_as_the_last_one_would():
    workers = {
        "local": {"cpus": 2, "memory": "1Gi"},
        "autoscaling": {"minReplicas": 0, "maxReplicas": 9},
    }
    new = replace(snapshot(workers=workers), measured=ONE_CONSUMER)
    found = after(new, plan(new, NOW))
    first = input_status(found, plan(found, NOW), [], NOW)
    assert first is not None
    assert first["workers"]["requested"] == 0
    found = replace(found, status=Status.model_validate(first))
    assert plan(found, NOW + LOCAL_START_SECONDS - 1).desired == 0
    assert plan(found, NOW + LOCAL_START_SECONDS).desired > 0


def test_own_workers_that_suffice_need_no_pods():
    workers = {
        "local": {"cpus": 2, "memory": "1Gi"},
        "autoscaling": {"minReplicas": 0, "maxReplicas": 9},
    }
    measured = Measurement(
        consumers=1, demand=100.0, busy_rate=10.0, local_rate=100.0, useful_workers=16
    )
    found = snapshot(workers=workers)
    assert plan(replace(found, measured=measured), NOW).desired == 0
    # Half of the rows have to come from worker pods, which may have half of the streams.
    less = replace(measured, local_rate=50.0, busy_rate=1.0)
    assert plan(replace(found, measured=less), NOW).desired == 8


def test_a_service_account_that_was_changed_stays_as_it_is():
    """The operator has no right to change it, for example to what this release would create."""
    new = snapshot()
    settled = after(new, plan(new, NOW))
    (key,) = (key for key in settled.objects if key[0] == "ServiceAccount")
    changed = {**settled.objects[key], "automountServiceAccountToken": True}
    found = replace(settled, objects={**settled.objects, key: changed})
    assert plan(found, NOW).objects == ()
    gone = {one: obj for one, obj in settled.objects.items() if one != key}
    assert [one["kind"] for one in plan(replace(settled, objects=gone), NOW).objects] == [key[0]]


TLS = "digits-distributed-input-tls"


def encrypted(**certificates: str) -> Snapshot:
    return replace(snapshot(encryption="All"), certificates=certificates, renew_seconds=7.0)


def test_only_encrypted_inputs_have_certificates():
    placed = {(one["kind"], one["metadata"]["name"]) for one in plan(snapshot()).objects}
    assert ("ConfigMap", TLS) not in placed


def test_a_renewal_writes_the_certificates_alone():
    new = encrypted(worker="first")
    running = after(new, plan(new, NOW))
    assert plan(running, NOW).objects == ()
    (written,) = plan(replace(running, certificates={"worker": "second"}), NOW).objects
    assert (written["kind"], written["metadata"]["name"]) == ("ConfigMap", TLS)
    assert written["data"] == {"worker": "second"}


def test_certificates_that_are_unknown_stay_as_they_are():
    running = after(encrypted(worker="first"), plan(encrypted(worker="first"), NOW))
    assert plan(replace(running, certificates={}), NOW).objects == ()


def test_the_input_is_reconciled_when_a_certificate_is_due():
    assert plan(encrypted(), NOW).interval == 7.0


def test_an_input_without_a_granted_dispatcher_has_none():
    found = snapshot(workers={"replicas": 2})
    planned = plan(found, grant=Grant(0, 0, "all", "no dispatcher", dispatcher=False))
    replicas = {
        one["metadata"]["name"]: one["spec"]["replicas"]
        for one in planned.objects
        if one["kind"] == "Deployment"
    }
    assert replicas == {"digits-dispatcher": 0, "digits-worker": 0}
