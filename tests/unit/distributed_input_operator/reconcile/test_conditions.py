"""Conditions: what holds, why, and what the user can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.decision import AutoscalingState, ScalingDecision
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.budget.claim import Grant, full_grant
from distributed_input_operator.objects.snapshot import Failure, Pod
from distributed_input_operator.reconcile.conditions import (
    PROBLEMS,
    conditions,
    findings,
    observed_generation,
)
from distributed_input_operator.reconcile.rollout import DEADLINE
from tests.unit.distributed_input_operator.snapshots import (
    NOW,
    ROLLED_OUT,
    after,
    plan,
    pods_status,
    ready,
    snapshot,
    with_deployments,
)

GENERATION = 3
"""The generation of the spec of `snapshot()`."""


def running(dispatchers=1, ready=1, worker=None, **spec):
    """Return an input whose dispatcher and workers have this status."""
    new = snapshot(**spec)
    return with_deployments(
        after(new, plan(new, NOW)),
        dispatcher=pods_status(dispatchers),
        worker=worker or pods_status(ready),
    )


ONE = full_grant(1)
REFUSED = Failure("Refused", "no")
RETRIED = Failure("Conflict", "later", passing=True)
NO_CODE = Failure("CodeMissing", "there is no ConfigMap")


def reasons(found, grant=ONE, decision=None, failures=()):
    return {one.type: one.reason for one in findings(found, grant, decision, failures)}


def true_ones(found, grant=ONE, failures=()):
    """Return which of the conditions that kstatus reads are True."""
    return {one.type for one in findings(found, grant, None, failures)[:3] if one.holds}


def written(found, generation=GENERATION, **fields):
    """Return the input with a status of this generation."""
    condition = ready(observedGeneration=generation, **fields)
    status = {"observedGeneration": generation, "conditions": [condition]}
    return replace(found, status=Status.model_validate(status))


def lagging(found):
    """Return the input right after a change of its workers, before Kubernetes has seen it."""
    place = ("Deployment", "digits-worker")
    live = found.objects[place]
    live = {**live, "metadata": {**live["metadata"], "generation": 2}}
    live["status"] = {**live["status"], "observedGeneration": 1}
    return replace(found, objects={**found.objects, place: live})


@pytest.mark.parametrize(
    ("found", "ready", "workers"),
    [
        (running(), "Serving", "AllServe"),
        (running(ready=0), "WorkersStarting", "Starting"),
        (running(dispatchers=0), "DispatcherStarting", "AllServe"),
        (running(suspend=True), "Suspended", "Suspended"),
    ],
    ids=["serving", "workers start", "dispatcher starts", "suspended"],
)
def test_ready_summarizes_the_dispatcher_and_the_workers(found, ready, workers):
    given = reasons(found)
    assert (given["Ready"], given["WorkersAvailable"]) == (ready, workers)


@pytest.mark.parametrize(
    ("worker", "ready"),
    [
        (pods_status(4), True),
        (pods_status(3, updated=4), False),
        (pods_status(4, updated=3, older=1), False),
        (pods_status(4, updated=1, older=4, reason="ReplicaSetUpdated"), False),
        (pods_status(4, updated=1, older=4, reason=DEADLINE), False),
    ],
    ids=["all", "one is not ready", "one is old", "a new one is not ready", "deadline"],
)
def test_an_input_is_ready_when_all_workers_have_its_latest_spec(worker, ready):
    found = running(worker=worker, workers={"replicas": 4})
    assert ("Ready" in true_ones(found, full_grant(4))) == ready
    assert reasons(found, full_grant(4))["WorkersAvailable"] != "Starting"


def test_a_new_dispatcher_that_does_not_start_is_no_ready_input():
    found = with_deployments(running(), dispatcher=pods_status(1, updated=0, older=1))
    ready = findings(found, ONE, None, [])[0]
    assert (ready.holds, ready.reason) == (False, "DispatcherStarting")
    assert "1 have an earlier one" in ready.message


@pytest.mark.parametrize(
    ("reason", "ready"), [(ROLLED_OUT, True), ("ReplicaSetUpdated", False)], ids=["later", "first"]
)
def test_with_autoscaling_the_minimum_is_enough_after_the_rollout(reason, ready):
    scaling = {"autoscaling": {"minReplicas": 2, "maxReplicas": 9}}
    found = running(worker=pods_status(3, updated=6, reason=reason), workers=scaling)
    pods = (Pod("digits-worker-x", "worker", unschedulable="no node"),)
    for one in (found, replace(found, pods=pods)):
        assert ("Ready" in true_ones(one, full_grant(6))) == ready
    fewer = running(worker=pods_status(1, updated=6, reason=reason), workers=scaling)
    assert "Ready" not in true_ones(fewer, full_grant(6))


@pytest.mark.parametrize(
    ("found", "grant", "failures", "expected"),
    [
        (running(), 1, [], "Ready"),
        (running(ready=0), 1, [], "Reconciling"),
        (running(worker=pods_status(0, updated=1, reason=DEADLINE)), 1, [], "Stalled"),
        (running(suspend=True), 0, [], None),
        (running(ready=0, workers={"replicas": 0}), 0, [], None),
        (running(), 1, [REFUSED], "Stalled"),
        (running(), 1, [NO_CODE, REFUSED], "Stalled"),
        (running(), 1, [NO_CODE], "Reconciling"),
        (running(), 1, [RETRIED], "Reconciling"),
        (written(running()), 1, [RETRIED], "Ready"),
        (written(running(), 2), 1, [RETRIED], "Reconciling"),
        (lagging(running()), 1, [], "Reconciling"),
        (lagging(written(running(), 2)), 1, [], "Reconciling"),
        (lagging(written(running())), 1, [], "Ready"),
        (lagging(written(running(), status="False")), 1, [], "Reconciling"),
    ],
    ids=[
        "serving",
        "starting",
        "deadline exceeded",
        "suspended",
        "no workers requested",
        "refused",
        "refused, ConfigMap missing",
        "ConfigMap missing",
        "first request failed",
        "later request failed",
        "request of a new spec failed",
        "not seen yet",
        "new spec not seen yet",
        "scaled, not seen yet",
        "repaired, not seen yet",
    ],
)
def test_exactly_one_condition_of_kstatus_is_true_unless_the_input_rests(
    found, grant, failures, expected
):
    assert true_ones(found, full_grant(grant), failures) == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("found", "failures", "generation"),
    [
        (running(), [], 3),
        (written(running(), 2), [], 3),
        (lagging(running()), [], -1),
        (lagging(written(running(), 2)), [], 2),
        (lagging(written(running())), [], 3),
        (written(running(), 2), [RETRIED], 2),
        (written(running(), 2), [NO_CODE, RETRIED], 2),
        (written(running(), 2), [NO_CODE], 3),
        (lagging(written(running(), 2)), [RETRIED, REFUSED], 3),
    ],
)
def test_a_generation_is_observed_when_its_objects_are_accepted_or_refused(
    found, failures, generation
):
    assert observed_generation(found, failures) == generation


def test_the_summary_has_one_reason_and_one_message():
    pods = (Pod("digits-worker-x", "worker", failing="container worker: ImagePullBackOff"),)
    found = replace(running(worker=pods_status(0, updated=1, reason=DEADLINE)), pods=pods)
    summary = findings(found, ONE, None, [])[:3]
    assert [one.type for one in summary] == ["Ready", "Reconciling", "Stalled"]
    assert {one.reason for one in summary} == {"PodsFailing"}
    assert {one.message for one in summary} == {"worker pods: container worker: ImagePullBackOff"}


def test_a_worker_that_fails_later_is_no_ready_input():
    pods = (Pod("digits-worker-x", "worker", failing="container worker ended 4 times"),)
    scaling = {"autoscaling": {"minReplicas": 1, "maxReplicas": 9}}
    found = replace(running(ready=5, workers=scaling), pods=pods)
    assert true_ones(found, full_grant(6)) == {"Reconciling"}


def test_without_another_cause_the_deadline_is_the_reason():
    found = running(worker=pods_status(0, updated=1, reason=DEADLINE))
    ready = findings(found, ONE, None, [])[0]
    assert (ready.reason, ready.message) == (
        DEADLINE,
        f"0 of 1 workers are ready: the ReplicaSet: {DEADLINE}",
    )


@pytest.mark.parametrize(
    ("grant", "reason"),
    [
        (Grant(0, 0, "team", "0 of 2 requested workers: budget team is used up"), "BudgetSpent"),
        (Grant(0, 2, "", "0 of 2 workers until other inputs' pods have terminated"), "OthersLeave"),
        (Grant(0, 0, "", "no more workers: the InputPolicy cannot be used"), "PolicyUnusable"),
    ],
)
def test_the_reason_of_a_limit_is_the_budget_the_wait_or_the_policy(grant, reason):
    given = reasons(running(ready=0), grant)
    assert given["ScalingLimited"] == given["WorkersAvailable"] == given["Ready"] == reason
    assert true_ones(running(ready=0), grant) == {"Reconciling"}


def test_a_budget_explains_more_than_autoscaling():
    decision = ScalingDecision(AutoscalingState(4), "MaxReplicas", "more than 4 workers are needed")
    assert reasons(running(), full_grant(4), decision)["ScalingLimited"] == "MaxReplicas"
    spent = Grant(1, 1, "team", "1 of 4 requested workers: budget team is used up")
    assert reasons(running(), spent, decision)["ScalingLimited"] == "BudgetSpent"


def test_the_first_failing_pod_is_named_with_the_number_of_others():
    pods = tuple(Pod(name, "worker", failing=f"container {name} failed") for name in "cab")
    found = findings(replace(running(ready=0), pods=pods), full_grant(3), None, [])
    (failing,) = [one for one in found if one.type == "PodsFailing"]
    assert failing.message == "worker pods (and 2 more): container a failed"
    assert found[0].reason == "PodsFailing"


@pytest.mark.parametrize(
    ("message", "kind"),
    [("pods is forbidden: exceeded quota: tight", "QuotaExceeded"), ("denied", "PodsRefused")],
)
def test_pods_that_the_api_server_refuses_are_reported(message, kind):
    found = running(ready=0)
    place = ("Deployment", "digits-worker")
    failed = {"type": "ReplicaFailure", "status": "True", "message": message}
    live = {**found.objects[place], "status": {"conditions": [failed]}}
    assert kind in reasons(replace(found, objects={**found.objects, place: live}))


def test_of_several_failures_the_one_that_the_user_must_fix_is_reported():
    given = reasons(running(), failures=[RETRIED, NO_CODE, REFUSED])
    assert (given["Ready"], given["Applied"]) == ("Refused", "Refused")


def test_a_long_message_is_cut():
    found = findings(running(), full_grant(1), None, [Failure("Refused", "x" * 5000)])
    assert max(len(one["message"]) for one in conditions(found, [], 1, "now")) == 1024


@pytest.mark.parametrize(
    ("measured", "ready", "workers"),
    [
        (None, "Serving", "LocalWorkers"),
        (Measurement(consumers=0), "Serving", "LocalWorkers"),
        (Measurement(consumers=2, local_workers=1), "Serving", "LocalWorkers"),
        (Measurement(consumers=2), "NoLocalWorkers", "NoLocalWorkers"),
    ],
)
def test_without_worker_pods_trainers_need_workers_of_their_own(measured, ready, workers):
    local = {"replicas": 0, "local": {"cpus": 2, "memory": "1Gi"}}
    found = replace(running(ready=0, workers=local), measured=measured)
    given = reasons(found, full_grant(0))
    assert (given["Ready"], given["WorkersAvailable"]) == (ready, workers)


def test_without_workers_of_any_kind_the_input_is_paused():
    given = reasons(running(ready=0, workers={"replicas": 0}), full_grant(0))
    assert (given["Ready"], given["WorkersAvailable"]) == ("Paused", "Paused")


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        ({"unmeasured": Failure("StatusUnusable", "more than 4 MiB")}, "Unmeasured", None),
        ({"unsigned": Failure("NotValid", "the issuer has expired")}, "AuthorityUnusable", None),
        (
            {"measured": Measurement(failing="dataset data:rows: no file, worker h:1")},
            "DatasetFailing",
            "DatasetError",
        ),
    ],
)
def test_a_problem_that_pods_survive_is_reported_and_the_input_stays_ready(change, kind, reason):
    (problem,) = change.values()
    found = findings(replace(running(), **change), ONE, None, ())
    (one,) = [each for each in found if each.type == kind]
    expected = (reason, problem.failing) if reason else (problem.reason, problem.message)
    assert (one.holds, one.reason, one.message) == (True, *expected)
    assert found[0].reason == "Serving"
    assert kind not in reasons(replace(running(), measured=Measurement()))
    assert kind in PROBLEMS, "it has an Event"
