"""To no worker and back: over restarts of the operator, under budgets, beside other owners."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api import timestamps
from distributed_input.api.resource.policy import UNLIMITED, Budget
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measured
from distributed_input_operator.budget.allocation import Claim, Grant, allocate
from distributed_input_operator.budget.ledger import Ask
from distributed_input_operator.objects.snapshot import Snapshot
from distributed_input_operator.reconcile.plan import Plan, all_of_it, plan, report
from tests.unit.distributed_input_operator.snapshots import NOW, after, snapshot

TTL = 60
NOBODY, SOMEONE = Measured(consumers=0), Measured(consumers=1)


def idle(since: float, desired: int = 0, **more: Any) -> Snapshot:
    """An input whose status says since when nobody reads, as a new leader finds it."""
    scaling = {"minReplicas": 2, "maxReplicas": 9, "idleTTLSeconds": TTL, **more}
    found = snapshot(workers={"autoscaling": scaling})
    told = {"autoscaling": {"desired": desired, "idleSince": timestamps.to_text(since)}}
    found = replace(found, status=Status.model_validate(told))
    return after(found, plan(found, NOW))


def looked(found: Snapshot, measured: Measured | None, seconds: float = 0.0) -> Plan:
    """A plan, so long after."""
    return plan(replace(found, measured=measured), NOW + seconds)


@pytest.mark.parametrize(
    ("measured", "workers"), [(None, 0), (NOBODY, 0), (SOMEONE, 8)], ids=["silent", "none", "one"]
)
def test_a_new_leader_leaves_who_is_idle_idle_until_someone_reads(measured, workers):
    assert looked(idle(NOW - 1000), measured).desired == workers


@pytest.mark.parametrize(("measured", "workers"), [(None, 5), (NOBODY, 0), (SOMEONE, 5)])
def test_a_new_leader_goes_on_counting_and_takes_nobodys_workers_unasked(measured, workers):
    found = idle(NOW - TTL + 10, desired=5)
    assert looked(found, measured, 9).desired == 5
    assert looked(found, measured, 11).desired == workers


def test_nothing_is_written_while_it_stays_idle():
    found = replace(idle(NOW - 1000), measured=NOBODY)
    made = plan(found, NOW)
    first = report(found, made, [], NOW)
    assert first is not None
    told = replace(found, status=Status.model_validate(first), scaled=None)
    for seconds in (30, 300, 9000):
        assert report(told, plan(told, NOW + seconds), [], NOW + seconds) is None


def test_while_paused_who_is_idle_stays_so():
    found = idle(NOW - 1000, paused=True)
    made = looked(found, SOMEONE)
    assert made.desired == 0
    assert made.decision
    assert made.decision.reason == "Paused"
    assert looked(idle(NOW - 1000), SOMEONE).desired == 8


def test_whose_number_someone_else_owns_is_never_idle():
    found = replace(snapshot(workers={"replicas": 3}), measured=NOBODY)
    made = plan(found, NOW + 1e6)
    assert (made.desired, made.decision) == (3, None)


def test_who_comes_back_gets_its_least_of_a_spent_budget():
    seen: list[Ask] = []

    def ask(one: Ask) -> Grant:
        seen.append(one)
        return all_of_it(one)

    plan(replace(idle(NOW - 1000), measured=SOMEONE), NOW, ask)
    budgets = {"all": Budget("all", (6, UNLIMITED, UNLIMITED))}
    back = replace(seen[0].claim, budgets=("all",))
    hog = Claim(("t", "hog"), 6, 1, 6, 6, priority=9, budgets=("all",))
    grants = allocate(budgets, [back, hog])
    assert (grants[back.key].target, grants[hog.key].target) == (2, 4)
    assert grants[back.key].workers == 0, "until those of the other have left"
