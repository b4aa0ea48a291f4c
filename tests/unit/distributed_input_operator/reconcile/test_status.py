"""The status of an input: written when it changes, and it explains what limits the input."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.budget.claim import Grant
from distributed_input_operator.objects.snapshot import Failure
from distributed_input_operator.reconcile.rollout import DEADLINE
from distributed_input_operator.reconcile.status import input_status, invalid_status
from testing.operator.gitops import CURRENT, FAILED, IN_PROGRESS, argocd_health, kstatus
from tests.unit.distributed_input_operator.reconcile.strategies import measurements, specs
from tests.unit.distributed_input_operator.snapshots import (
    NOW,
    ROLLED_OUT,
    after,
    plan,
    pods_status,
    snapshot,
    with_deployments,
)

MESSAGE = "3 of 9 requested workers: budget research is used up; team/b loses 41 % more per worker"


FAILURE = Failure("Refused", "no")
RETRIED = Failure("Conflict", "later", passing=True)


def written(found, planned, now, failures=()):
    """Return the status, which must be worth a write."""
    status = input_status(found, planned, failures, now)
    assert status is not None
    return status


def condition(status, kind):
    return next(one for one in status["conditions"] if one["type"] == kind)


def limited(found):
    """Return the status of an input that gets three workers."""
    return written(found, plan(found, NOW, Grant(3, 3, "research", MESSAGE)), NOW)


@given(specs, measurements, st.floats(0, 1e5))
def test_a_written_status_is_not_written_again(spec, measured, later):
    new = replace(snapshot(**spec), measured=measured)
    planned = plan(new)
    status = input_status(new, planned, [], NOW)
    assert status is not None
    found = replace(new, status=Status.model_validate(status))
    settled = plan(found)
    if settled.desired == planned.desired and settled.decision == planned.decision:
        assert input_status(found, settled, [], NOW) is None
        if measured is None:
            assert input_status(found, plan(found, NOW + later), [], NOW + later) is None


def test_the_time_of_a_condition_moves_only_with_its_status():
    new = snapshot()
    planned = plan(new)
    first = Status.model_validate(input_status(new, planned, [], NOW))
    found = replace(new, status=first)
    second = Status.model_validate(input_status(found, planned, [FAILURE], NOW + 60))
    times = [{one.type: one.last_transition_time for one in s.conditions} for s in (first, second)]
    assert times[0]["Ready"] == times[1]["Ready"]
    assert times[1]["Applied"] > times[1]["Ready"]
    assert {one.type: one.reason for one in second.conditions}["Ready"] == "Refused"


def test_the_generation_of_status_and_conditions_is_the_one_that_was_applied():
    new = snapshot()
    for failures, generation in (([RETRIED], -1), ([], 3)):
        status = input_status(new, plan(new), failures, NOW)
        assert status is not None
        found = {one["observedGeneration"] for one in status["conditions"]}
        assert status["observedGeneration"] == generation
        assert found == {max(generation, 0)}, "a condition has no negative generation"


def test_the_status_explains_a_grant_that_is_smaller_than_the_request():
    status = limited(snapshot(workers={"replicas": 9}))
    assert (status["workers"]["desired"], status["workers"]["requested"]) == (3, 9)
    limit = condition(status, "ScalingLimited")
    assert (limit["reason"], limit["message"]) == ("BudgetSpent", MESSAGE)


def test_a_message_that_only_names_another_rival_is_not_written():
    found = snapshot(workers={"replicas": 9})
    status = limited(found)
    found = replace(found, status=Status.model_validate(status))
    other = MESSAGE.replace("team/b loses 41", "team/c loses 43")
    planned = plan(found, NOW, Grant(3, 3, "research", other))
    after_rival = input_status(found, planned, [], NOW + 1) or status
    assert condition(after_rival, "ScalingLimited")["message"] == MESSAGE
    fewer = other.replace("3 of 9", "2 of 9")
    planned = plan(found, NOW, Grant(2, 2, "research", fewer))
    after_change = written(found, planned, NOW + 1)
    assert condition(after_change, "ScalingLimited")["message"] == fewer


@pytest.mark.parametrize(("consumers", "ready"), [(0, "Idle"), (1, "DispatcherStarting")])
def test_an_idle_input_is_ready_for_its_first_consumer(consumers, ready):
    found = snapshot(workers={"autoscaling": {"maxReplicas": 9, "idleTTLSeconds": 60}})
    found = replace(found, measured=Measurement(consumers=0))
    first = written(found, plan(found), NOW)
    assert first["autoscaling"]["idleSince"]
    found = replace(
        found, status=Status.model_validate(first), measured=Measurement(consumers=consumers)
    )
    objects = dict(after(found, plan(found)).objects)
    place = ("Deployment", "digits-dispatcher")
    objects[place] = {**objects[place], "status": {"availableReplicas": 1 - consumers}}
    found = replace(found, objects=objects)
    planned = plan(found, NOW + 61)
    assert planned.desired == (0 if consumers == 0 else 1)
    summary = condition(written(found, planned, NOW + 61), "Ready")
    assert summary["reason"] == ready
    assert summary["status"] == ("True" if ready == "Idle" else "False")


@given(
    st.builds(
        pods_status,
        st.integers(0, 2),
        updated=st.integers(0, 2),
        older=st.integers(0, 1),
        reason=st.sampled_from([ROLLED_OUT, "ReplicaSetUpdated", DEADLINE]),
    ),
    st.lists(st.sampled_from([FAILURE, RETRIED, Failure("CodeMissing", "no ConfigMap")])),
    st.sampled_from([{}, {"suspend": True}, {"workers": {"replicas": 2}}]),
    st.sampled_from([-1, 2, 3]),
    st.booleans(),
)
def test_flux_and_argo_cd_agree_and_never_see_an_incomplete_input_as_ready(
    worker, failures, spec, generation, seen
):
    new = snapshot(**spec)
    found = with_deployments(
        after(new, plan(new)),
        dispatcher=pods_status(1),
        worker={**worker, "observedGeneration": 1 if seen else 0},
    )
    found.objects["Deployment", "digits-worker"]["metadata"]["generation"] = 1
    found = replace(found, status=Status.model_validate({"observedGeneration": generation}))
    status = written(found, plan(found), NOW, failures)
    obj = {"metadata": {"generation": 3}, "status": status}
    health = (kstatus(obj), argocd_health(obj)[0])
    assert health in {
        (CURRENT, "Healthy"),
        (IN_PROGRESS, "Progressing"),
        (IN_PROGRESS, "Suspended"),
        (FAILED, "Degraded"),
    }
    summary = [one for one in status["conditions"][:3] if one["status"] == "True"]
    assert len(summary) <= 1
    if health[0] == CURRENT:
        assert (seen, worker["replicas"]) == (True, worker["updatedReplicas"])
        assert worker["availableReplicas"] >= spec.get("workers", {"replicas": 1})["replicas"]
        assert all(one is RETRIED for one in failures)


def test_measurements_end_when_an_input_is_suspended():
    scaling = {"workers": {"autoscaling": {"maxReplicas": 9}}}
    reading = replace(snapshot(**scaling), measured=Measurement(consumers=2, rows_per_second=100))
    before = written(reading, plan(reading), NOW)
    assert before["trainers"]["rowsPerSecond"] == 100
    suspended = snapshot(suspend=True, **scaling)
    # The dispatcher may still answer while its pod terminates.
    for measured in (None, Measurement(consumers=2, rows_per_second=100)):
        found = replace(suspended, status=Status.model_validate(before), measured=measured)
        status = written(found, plan(found, NOW + 1), NOW + 1)
        assert "trainers" not in status
        assert "autoscaling" not in status
        assert status["workers"] == {
            "desired": 0,
            "requested": 0,
            "replicas": 0,
            "ready": 0,
            "summary": "0/0",
        }


def test_an_invalid_spec_is_reported_once_and_the_pods_are_still_counted():
    before = {"workers": {"desired": 2, "ready": 2, "replicas": 2}, "selector": "a=b"}
    live = {"status": {"replicas": 2, "readyReplicas": 1}}
    first = invalid_status(before, 4, "spec.x: wrong", live, NOW)
    assert first is not None
    assert first["selector"] == "a=b"
    assert first["workers"] == {"desired": 2, "ready": 1, "replicas": 2, "summary": "1/2"}
    found = [(one["type"], one["status"], one["message"]) for one in first["conditions"]]
    assert found == [
        ("Ready", "False", "spec.x: wrong"),
        ("Reconciling", "False", "spec.x: wrong"),
        ("Stalled", "True", "spec.x: wrong"),
    ]
    assert invalid_status(first, 4, "spec.x: wrong", live, NOW + 99) is None
    gone = invalid_status(first, 4, "spec.x: wrong", {}, NOW + 99)
    assert gone is not None
    assert gone["workers"]["summary"] == "0/2"


def test_the_status_has_the_address_of_the_tf_data_service_only_if_the_input_has_one():
    found = snapshot(tfDataService={})
    status = written(found, plan(found), NOW)
    assert status["tfDataService"] == {"address": "grpc://digits-dispatcher:7080"}
    plain = snapshot()
    assert "tfDataService" not in written(plain, plan(plain), NOW)
