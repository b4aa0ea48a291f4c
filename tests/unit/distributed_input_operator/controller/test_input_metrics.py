"""Gauges of inputs: unknown values and deleted inputs have none."""

from __future__ import annotations

from dataclasses import replace

from distributed_input.api.resource.policy import UNLIMITED, Budget
from distributed_input_operator import metrics
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.budget.claim import BudgetUsage, Grant
from distributed_input_operator.controller import input_metrics
from tests.unit.distributed_input_operator.snapshots import NOW, plan, snapshot

KEY = ("team", "digits")


def exposed() -> str:
    return metrics.exposition().decode()


def test_a_silent_dispatcher_leaves_no_measured_gauge():
    measured = replace(
        snapshot(), measured=Measurement(consumers=1, demand=400, busy_rate=100, useful_workers=9)
    )
    input_metrics.set_input(KEY, measured, plan(measured))
    assert 'workers_recommended{input="digits",namespace="team"}' in exposed()
    silent = replace(measured, measured=None)
    input_metrics.set_input(KEY, silent, plan(silent))
    for name in ("workers_recommended", "stall_ratio", "rows_per_second"):
        assert f'distributed_input_{name}{{input="digits"' not in exposed()
    assert 'distributed_input_workers_desired{input="digits"' in exposed()
    input_metrics.remove_input(KEY)
    assert 'input="digits"' not in exposed()


def limits() -> dict[str, str]:
    """Return the series of the gauge of limits, and their values."""
    lines = [one for one in exposed().splitlines() if one.startswith(metrics.LIMITED.name + "{")]
    return dict(one.rsplit(" ", 1) for one in lines)


def test_a_limited_input_has_one_series_for_each_budget_whatever_the_numbers():
    found, seen = snapshot(workers={"replicas": 9}), set()
    for workers in range(8):
        grant = Grant(workers, workers, "research", f"{workers} of 9 requested workers")
        input_metrics.set_input(KEY, found, plan(found, NOW, grant))
        seen |= set(limits())
    assert len(seen) == 1
    assert list(limits().values()) == ["2.0"]
    grant = Grant(1, 1, "team", "1 of 9")
    input_metrics.set_input(KEY, found, plan(found, NOW, grant))
    assert ['budget="team"' in one for one in limits()] == [True]
    input_metrics.set_input(KEY, found, plan(found))
    assert limits() == {}
    input_metrics.remove_input(KEY)


def test_budgets_are_exposed_in_cpus_and_without_what_is_unlimited():
    usage = BudgetUsage(Budget("all", (UNLIMITED, 4000, UNLIMITED)), 1, 2, (2, 1500, 1 << 30))
    input_metrics.set_budgets([usage])
    found = {one for one in exposed().splitlines() if one.startswith("distributed_input_budget{")}
    assert 'distributed_input_budget{budget="all",resource="cpu",what="used"} 1.5' in found
    assert 'distributed_input_budget{budget="all",resource="cpu",what="limit"} 4.0' in found
    assert not [one for one in found if 'resource="workers",what="limit"' in one]
    input_metrics.set_budgets([])
    assert "distributed_input_budget{" not in exposed()
