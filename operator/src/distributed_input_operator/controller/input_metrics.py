"""Set the gauges of inputs and budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from distributed_input.api.resource.policy import UNLIMITED
from distributed_input_operator import metrics
from distributed_input_operator.autoscaling.decision import recommended_workers
from distributed_input_operator.autoscaling.rates import Measurement
from distributed_input_operator.budget.claim import BudgetUsage, InputKey
from distributed_input_operator.objects.snapshot import Snapshot
from distributed_input_operator.objects.worker import parallelism
from distributed_input_operator.reconcile.conditions import ready_workers
from distributed_input_operator.reconcile.pace import RolloutState
from distributed_input_operator.reconcile.plan import Plan

RESOURCES = ("workers", "cpu", "memory")
"""Names of the resources in an Amount."""
_UNITS = (1, 1000, 1)
"""An Amount has thousandths of CPUs."""
_INPUT_GAUGES = (
    metrics.ASKED,
    metrics.DESIRED,
    metrics.LIMITED,
    metrics.READY,
    metrics.RECOMMENDED,
    metrics.STALL,
    metrics.ROWS,
)
_rollouts: dict[RolloutState, int] = {}
"""The values of the gauge of rollouts. It is set only on a change: that is called very often."""


def set_input(key: InputKey, snapshot: Snapshot, plan: Plan) -> None:
    """Set the gauges of an input."""
    metrics.DESIRED.set(key, plan.desired)
    metrics.ASKED.set(key, plan.requested)
    limit = plan.requested - plan.desired if plan.grant.message else None
    metrics.LIMITED.set(key, limit, plan.grant.budget)
    metrics.READY.set(key, ready_workers(snapshot))
    set_measurement(key, snapshot.measured, parallelism(snapshot.resource))


def set_measurement(key: InputKey, measured: Measurement | None, threads: int) -> None:
    """Set the gauges that a look measures. `threads`: rows that a worker computes at a time.

    Unknown values are removed, or autoscalers would act on stale ones.
    """
    metrics.RECOMMENDED.set(key, recommended_workers(measured, threads))
    metrics.STALL.set(key, measured.stall if measured else None)
    metrics.ROWS.set(key, measured.rows_per_second if measured else None)


def remove_input(key: InputKey) -> None:
    """Remove the gauges of a deleted input."""
    for gauge in _INPUT_GAUGES:
        gauge.set(key, None)


def set_budgets(usage: Iterable[BudgetUsage], others: Sequence[str] = ()) -> None:
    """Set the gauges of all budgets. Those of other budgets are removed.

    Args:
        usage: how much of each budget is used.
        others: names of the resources besides CPU and memory that budgets limit.
    """
    resources, units = (*RESOURCES, *others), (*_UNITS, *(1 for _ in others))
    metrics.BUDGET.clear()
    for one in usage:
        amounts = {
            "used": one.used,
            "limit": one.budget.limits,
            "guaranteed": one.budget.guaranteed,
        }
        for what, amount in amounts.items():
            for resource, number, unit in zip(resources, amount, units, strict=False):
                if number != UNLIMITED:
                    metrics.BUDGET.labels(one.budget.name, resource, what).set(number / unit)


def set_rollouts(counts: Mapping[RolloutState, int]) -> None:
    """Set the gauges of the number of inputs in each state of a rollout."""
    for state in RolloutState:
        count = counts.get(state, 0)
        if _rollouts.get(state) != count:
            metrics.ROLLOUTS.labels(state.value).set(count)
            _rollouts[state] = count
