"""The rollout of a Deployment."""

from __future__ import annotations

import pytest

from distributed_input_operator.reconcile.rollout import (
    DEADLINE,
    is_observed,
    is_rolling,
    rollout,
)
from tests.unit.distributed_input_operator.snapshots import pods_status


@pytest.mark.parametrize(
    ("observed", "generation", "expected"), [(2, 2, True), (1, 2, False), (None, 1, False)]
)
def test_a_status_of_an_earlier_generation_is_not_about_the_spec(observed, generation, expected):
    status = {} if observed is None else {"observedGeneration": observed}
    live = {"metadata": {"generation": generation}, "status": status}
    assert is_observed(live) is expected


def test_a_deployment_that_does_not_exist_is_not_rolled_out():
    assert not rollout({}, 1, 1).complete
    assert rollout({}, 0, 0).complete


@pytest.mark.parametrize("older", [1, 0])
def test_a_recreated_deployment_is_rolling_until_it_has_a_latest_pod(older):
    """The controller keeps the reason of the rollout before while earlier pods end."""
    live = {"spec": {"replicas": 1}, "status": pods_status(older, updated=0, older=older)}
    assert is_rolling(live)
    live["status"] = pods_status(0, updated=1)
    assert not is_rolling(live)


def test_a_lost_pod_that_a_quota_refuses_is_no_rollout():
    live = {"spec": {"replicas": 1}, "status": pods_status(0)}
    live["status"]["conditions"].append({"type": "ReplicaFailure", "status": "True"})
    assert not is_rolling(live)


def test_pods_are_counted_by_template():
    found = rollout({"status": pods_status(3, updated=1, older=2)}, 3, 3)
    assert (found.complete, found.updated, found.older, found.failed) == (False, 1, 2, "")


def test_fewer_pods_than_desired_are_enough_only_after_the_rollout():
    later = {"status": pods_status(2, updated=5)}
    first = {"status": pods_status(2, updated=5, reason="ReplicaSetUpdated")}
    assert [rollout(one, 5, 2).complete for one in (later, first)] == [True, False]
    assert not rollout(later, 5, 3).complete


def test_a_passed_deadline_has_the_message_of_the_deployment():
    found = rollout({"status": pods_status(0, updated=1, reason=DEADLINE)}, 1, 1)
    assert found.failed == f"the ReplicaSet: {DEADLINE}"
