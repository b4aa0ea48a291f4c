"""Which parts of an input get a new pod template: one at a time, and the operator's in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import names
from distributed_input.api.timestamps import to_text
from distributed_input_operator.objects.snapshot import (
    CODE_MISSING,
    CODE_REFUSED,
    Failure,
    Pod,
    Snapshot,
)
from distributed_input_operator.reconcile.pace import RolloutState, Turn
from distributed_input_operator.reconcile.plan import Plan, plan_demand
from distributed_input_operator.reconcile.rollout import DEADLINE
from distributed_input_operator.reconcile.status import input_status
from distributed_input_operator.reconcile.template_changes import (
    Cause,
    PartChange,
    held_parts,
    rollout_state,
)
from tests.unit.distributed_input_operator.objects.builders import from_config_map
from tests.unit.distributed_input_operator.snapshots import (
    NOW,
    SETTINGS,
    after,
    plan,
    pods_status,
    resource,
    snapshot,
    template,
    with_deployments,
)

NEXT = replace(SETTINGS, pull_secrets=("registry",), revision="2")
"""Settings that change the template of every pod."""
DISPATCHER, WORKER = "digits-dispatcher", "digits-worker"
SERVING = {"dispatcher": pods_status(1), "worker": pods_status(1)}
ROLLING = pods_status(1, updated=1, older=1, reason="ReplicaSetUpdated")
STUCK = pods_status(1, updated=1, older=1, reason=DEADLINE)
CODE = {"dataset": from_config_map("code")}
USERS: dict[str, Any] = {"workers": template(image="mine:2"), "dispatcher": {"image": "mine:2"}}
"""A change of both parts."""


def serving(**spec: Any) -> Snapshot:
    """Return an input whose pods serve."""
    new = snapshot(**spec)
    return with_deployments(after(new, plan(new)), **SERVING)


def upgraded(found: Snapshot) -> Snapshot:
    return replace(found, settings=NEXT)


def planned(found: Snapshot, turn: Turn = Turn.START) -> Plan:
    return plan(found, NOW, turn=turn)


def written(found: Snapshot, turn: Turn = Turn.START) -> list[str]:
    """Return the Deployments that the plan writes."""
    objects = planned(found, turn).objects
    return [one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"]


def state(found: Snapshot) -> RolloutState:
    return plan_demand(found, NOW).rollout


def advanced(found: Snapshot, **statuses: dict[str, Any]) -> Snapshot:
    """Return the snapshot after its plan was applied, with the next status of its Deployments."""
    return with_deployments(after(found, planned(found)), **statuses)


def test_the_operators_template_waits_for_its_turn_and_nothing_else_is_held():
    found = upgraded(serving())
    assert state(found) is RolloutState.WAITING
    assert written(found, Turn.WAIT) == []
    assert planned(found, Turn.WAIT).scales == ()
    assert written(found, Turn.START) == [DISPATCHER]


def test_the_workers_follow_the_dispatcher_without_giving_up_the_slot():
    found = upgraded(serving())
    rolling = advanced(found, dispatcher=ROLLING)
    assert state(rolling) is RolloutState.ROLLING
    assert written(rolling) == []
    half = with_deployments(rolling, dispatcher=pods_status(1))
    assert state(half) is RolloutState.ROLLING
    assert written(half) == [WORKER]
    last = advanced(half, worker=ROLLING)
    assert state(last) is RolloutState.ROLLING
    done = with_deployments(last, worker=pods_status(1))
    assert state(done) is RolloutState.UPDATED
    assert written(done) == []


def test_a_failing_rollout_is_seen_before_its_deadline():
    rolling = advanced(upgraded(serving()), dispatcher=ROLLING)
    pod = Pod("d", "dispatcher", failing="container dispatcher ended 4 times")
    assert state(replace(rolling, pods=(pod,))) is RolloutState.FAILING
    assert state(with_deployments(rolling, dispatcher=STUCK)) is RolloutState.FAILING


def test_earlier_pods_that_stay_fail_the_rollout():
    stopping = advanced(upgraded(serving()), dispatcher=pods_status(0))
    pod = Pod("d", "dispatcher", ends_by=to_text(NOW - 61), terminating=True)
    assert state(replace(stopping, pods=(pod,))) is RolloutState.FAILING
    pods = (replace(pod, component="worker"), replace(pod, ends_by=to_text(NOW - 59)))
    assert state(replace(stopping, pods=pods)) is RolloutState.ROLLING
    status = pods_status(1, updated=0, older=1)
    assert state(with_deployments(stopping, dispatcher=status)) is RolloutState.ROLLING
    status["conditions"] += [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]
    assert state(with_deployments(stopping, dispatcher=status)) is RolloutState.FAILING


def test_the_next_operator_heals_a_failing_input_at_once():
    failing = advanced(upgraded(serving()), dispatcher=STUCK)
    back = replace(failing, settings=replace(SETTINGS, revision="3"))
    assert state(back) is RolloutState.FAILING
    assert written(back, Turn.START) == [DISPATCHER]


def test_pods_that_do_not_serve_get_the_template_at_once():
    found = upgraded(with_deployments(serving(), worker=pods_status(0)))
    assert WORKER in written(found, Turn.WAIT)


def test_a_suspended_input_gets_the_template_at_once():
    new = snapshot(suspend=True)
    asleep = with_deployments(
        after(new, plan(new)), dispatcher=pods_status(0), worker=pods_status(0)
    )
    assert state(upgraded(asleep)) is RolloutState.SETTLED
    assert written(upgraded(asleep), Turn.WAIT) == [DISPATCHER, WORKER]


@pytest.mark.parametrize(
    "spec",
    [
        {"workers": {"parallelism": 3}},
        {"workers": template(image="mine:2")},
        {"dataset": {"type": "EntryPoint", "entryPoint": {"function": "a:b"}}},
    ],
)
def test_a_users_change_does_not_wait(spec):
    found = replace(upgraded(serving()), resource=resource(**spec))
    assert WORKER in written(found, Turn.WAIT)


def test_new_code_does_not_wait():
    found = replace(upgraded(serving(**CODE)), code="new")
    assert written(found, Turn.WAIT) == [WORKER]


@pytest.mark.parametrize("reason", [CODE_MISSING, CODE_REFUSED])
def test_code_that_cannot_be_used_leaves_the_running_code(reason: str):
    missing = (Failure(reason, "there is no ConfigMap code"),)
    found = replace(serving(**CODE), code="", missing=missing)
    assert written(found) == []
    new = replace(snapshot(**CODE), missing=missing)
    assert written(new) == [DISPATCHER]


def test_the_number_of_workers_changes_while_the_template_waits():
    """Autoscalers change it all the time. That must not bring the template early."""
    found = replace(upgraded(serving()), resource=resource(workers={"replicas": 4}))
    assert written(found, Turn.WAIT) == []
    assert planned(found, Turn.WAIT).scales == ((WORKER, 4),)
    stopped = replace(upgraded(serving()), resource=resource(suspend=True))
    assert set(planned(stopped, Turn.WAIT).scales) == {(DISPATCHER, 0), (WORKER, 0)}


def test_the_mark_of_a_rollout_stays_until_the_user_changes_the_pods():
    half = advanced(upgraded(serving()), dispatcher=pods_status(1))
    done = advanced(half, worker=pods_status(1))
    assert planned(done).objects == ()
    scaled = replace(done, resource=resource(workers={"replicas": 4}))
    (workers,) = planned(scaled).objects
    assert workers["metadata"]["annotations"][names.ROLLOUT_ANNOTATION] == "2"
    changed = replace(done, resource=resource(workers=template(image="mine:2")))
    (workers,) = planned(changed).objects
    assert names.ROLLOUT_ANNOTATION not in workers["metadata"]["annotations"]


def test_both_parts_of_a_users_change_are_replaced_one_after_the_other():
    found = replace(serving(), resource=resource(**USERS))
    assert written(found) == [DISPATCHER]
    status = input_status(found, planned(found), [], NOW)
    assert status is not None
    conditions = {one["type"]: one for one in status["conditions"]}
    assert conditions["Ready"]["reason"] == "PartWaits"
    assert status["observedGeneration"] == -1
    rolling = advanced(found, dispatcher=ROLLING)
    assert written(rolling) == []
    assert written(with_deployments(rolling, dispatcher=STUCK)) == [WORKER]  # It may be the fix.
    assert written(with_deployments(rolling, dispatcher=pods_status(1))) == [WORKER]


def test_a_change_of_workers_while_the_dispatcher_is_replaced_waits():
    found = replace(serving(), resource=resource(dispatcher={"image": "mine:2"}))
    rolling = replace(advanced(found, dispatcher=ROLLING), resource=resource(**USERS))
    assert written(rolling) == []


def test_the_port_of_a_dispatcher_that_waits_stays_open():
    def opened(found: Snapshot) -> list[set[int]]:
        (policy,) = (one for one in planned(found).objects if one["kind"] == "NetworkPolicy")
        return [{port["port"] for port in rule["ports"]} for rule in policy["spec"]["ingress"]]

    rolling = with_deployments(serving(), worker=ROLLING)
    found = replace(rolling, resource=resource(dispatcher={"port": 7000}))
    assert written(found) == []
    clients, operator, everyone = opened(found)
    assert {7000, names.DISPATCHER_PORT} <= clients
    assert operator == {7000, names.DISPATCHER_PORT}
    assert everyone == {names.METRICS_PORT}
    done = with_deployments(found, worker=pods_status(1))
    assert opened(done)[1] == {7000}


def test_a_status_says_why_the_pods_keep_their_template():
    found = upgraded(serving())
    for turn, reason in (
        (Turn.WAIT, "WaitingForTurn"),
        (Turn.FOLLOW, "OtherChange"),
        (Turn.STOPPED, "RolloutStopped"),
    ):
        status = input_status(found, planned(found, turn), [], NOW)
        assert status is not None
        conditions = {one["type"]: one for one in status["conditions"]}
        assert conditions["UpdatePending"]["reason"] == reason
        assert conditions["Ready"]["status"] == "True"
    status = input_status(found, planned(found, Turn.START), [], NOW)
    assert status is not None
    assert "UpdatePending" not in {one["type"] for one in status["conditions"]}


WITHOUT_NODE = Pod("w", "worker", unschedulable="0/3 nodes are available")


def healthy(found: Snapshot) -> bool:
    return all(one.healthy for one in plan_demand(found, NOW).changes)


def test_an_input_that_lacks_pods_is_not_healthy():
    found = upgraded(serving(workers={"replicas": 4}))
    assert not healthy(found)  # One of four is available.
    whole = with_deployments(found, worker=pods_status(4))
    assert healthy(whole)
    assert not healthy(replace(whole, pods=(WITHOUT_NODE,)))
    failing = Pod("w", "worker", failing="container worker ended 4 times")
    assert not healthy(replace(whole, pods=(failing,)))


def test_an_input_whose_first_rollout_never_completes_gets_its_turn():
    found = upgraded(serving(workers={"replicas": 4}))
    stuck = with_deployments(found, worker=pods_status(3, updated=4, reason=DEADLINE))
    assert state(stuck) is RolloutState.WAITING
    assert written(stuck) == [DISPATCHER]
    assert written(stuck, Turn.WAIT) == []
    spec: dict[str, Any] = {"workers": {"replicas": 4}, "dispatcher": {"image": "mine:2"}}
    user = replace(stuck, settings=SETTINGS, resource=resource(**spec))
    assert written(user) == [DISPATCHER]


def test_a_part_without_nodes_does_not_hold_a_users_change_of_the_other():
    progress = pods_status(3, updated=4, reason="ReplicaSetUpdated")
    starting = with_deployments(serving(workers={"replicas": 4}), worker=progress)
    found = replace(
        starting, resource=resource(workers={"replicas": 4}, dispatcher={"image": "mine:2"})
    )
    assert written(found) == []
    assert written(replace(found, pods=(WITHOUT_NODE,))) == [DISPATCHER]


def test_replaced_workers_without_nodes_do_not_fail_the_rollout():
    half = advanced(upgraded(serving(workers={"replicas": 4})), dispatcher=pods_status(1))
    last = advanced(half, worker=pods_status(3, updated=4, reason=DEADLINE))
    assert state(replace(last, pods=(WITHOUT_NODE,))) is RolloutState.UPDATED
    failing = Pod("w", "worker", failing="container worker ended 4 times")
    assert state(replace(last, pods=(failing,))) is RolloutState.FAILING
    older = with_deployments(last, worker=pods_status(3, updated=1, older=3, reason=DEADLINE))
    assert state(older) is RolloutState.FAILING


def test_a_failing_input_that_is_suspended_does_not_show_a_good_template():
    failing = advanced(upgraded(serving()), dispatcher=STUCK)
    asleep = replace(failing, resource=resource(suspend=True))
    stopped = advanced(asleep, dispatcher=pods_status(0), worker=pods_status(0))
    assert state(stopped) is RolloutState.SETTLED


parts = st.builds(
    PartChange,
    st.just(""),
    st.just(""),
    st.sampled_from(Cause),
    protected=st.booleans(),
    busy=st.booleans(),
    failing=st.sampled_from(["", "it fails"]),
    marked=st.sampled_from(["", "1", "2"]),
    unschedulable=st.booleans(),
)


@given(parts, parts, st.booleans())
def test_a_serving_part_is_never_replaced_while_the_other_one_is(dispatcher, worker, may_start):
    changes = (replace(dispatcher, deployment="d"), replace(worker, deployment="w"))
    started = [
        one
        for one in changes
        if one.deployment not in held_parts(changes, may_start=may_start)
        and one.cause is not Cause.NONE
        and one.protected
        and not one.busy
    ]
    assert len(started) <= 1
    for one in started:
        (other,) = (part for part in changes if part is not one)
        assert not other.busy or (
            one.cause is Cause.USER and (other.failing or other.unschedulable)
        )
        if one.cause is Cause.OPERATOR:
            assert may_start


@given(parts, parts)
def test_a_part_that_needs_no_template_is_never_held(dispatcher, worker):
    changes = (replace(dispatcher, deployment="d"), replace(worker, deployment="w"))
    held = held_parts(changes, may_start=False)
    assert all(
        one.cause is not Cause.NONE and one.protected for one in changes if one.deployment in held
    )


@given(parts, parts)
def test_an_input_in_turn_always_makes_progress(dispatcher, worker):
    """Otherwise it would hold its slot for good."""
    changes = (replace(dispatcher, deployment="d"), replace(worker, deployment="w"))
    if rollout_state(changes, "2") is not RolloutState.WAITING:
        return
    held = held_parts(changes, may_start=True)
    waiting = {one.deployment for one in changes if one.cause is Cause.OPERATOR and one.protected}
    assert not waiting <= held or any(
        one.cause is not Cause.NONE and one.deployment not in held for one in changes
    )
