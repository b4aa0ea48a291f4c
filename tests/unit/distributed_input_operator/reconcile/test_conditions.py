"""Conditions: what holds, why, and what the user can do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributed_input_operator.autoscaling.decision import AutoscalingState, ScalingDecision
from distributed_input_operator.budget.claim import Grant, full_grant
from distributed_input_operator.objects.snapshot import Failure, Pod
from distributed_input_operator.reconcile.conditions import conditions, findings
from tests.unit.distributed_input_operator.snapshots import NOW, after, plan, snapshot


def running(dispatchers=1, ready=1, **spec):
    """Return an input whose dispatcher and workers have this status."""
    new = snapshot(**spec)
    found = after(new, plan(new, NOW))
    statuses = {
        "digits-dispatcher": {"availableReplicas": dispatchers},
        "digits-worker": {"readyReplicas": ready},
    }
    objects = dict(found.objects)
    for name, status in statuses.items():
        objects["Deployment", name] = {**objects["Deployment", name], "status": status}
    return replace(found, objects=objects)


ONE = full_grant(1)


def reasons(found, grant=ONE, decision=None, failures=()):
    return {one.type: one.reason for one in findings(found, grant, decision, failures)}


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


def test_some_of_the_workers_are_enough_to_be_ready():
    assert reasons(running(), full_grant(4))["WorkersAvailable"] == "SomeServe"
    assert reasons(running(), full_grant(4))["Ready"] == "Serving"


@pytest.mark.parametrize(
    ("grant", "reason"),
    [
        (Grant(0, 0, "team", "0 of 2 requested workers: budget team is used up"), "BudgetSpent"),
        (Grant(0, 2, "", "0 of 2 workers until other inputs' pods have terminated"), "OthersLeave"),
    ],
)
def test_the_reason_of_a_limit_is_the_budget_or_the_wait(grant, reason):
    given = reasons(running(ready=0), grant)
    assert given["ScalingLimited"] == given["WorkersAvailable"] == reason


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


def test_a_failed_write_keeps_a_serving_input_ready_and_names_the_failure():
    refused = Failure("Refused", "no")
    given = reasons(running(), failures=[refused, Failure("Other", "later")])
    assert (given["Ready"], given["Applied"]) == ("Refused", "Refused")
    ready = findings(running(), full_grant(1), None, [refused])[0]
    assert ready.holds


def test_a_long_message_is_cut():
    found = findings(running(), full_grant(1), None, [Failure("Refused", "x" * 5000)])
    assert max(len(one.message) for one in conditions(found, [], 1, "now")) == 1024
