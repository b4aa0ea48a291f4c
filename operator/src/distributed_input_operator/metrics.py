"""The operator's metrics. Names are an interface."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

from distributed_input.api.resource.policy import UNLIMITED, Amount, Budget
from distributed_input_operator.autoscaling.scaling import recommended
from distributed_input_operator.kube.store import InputKey
from distributed_input_operator.objects.snapshot import Snapshot
from distributed_input_operator.objects.worker import parallelism
from distributed_input_operator.reconcile.conditions import ready_workers
from distributed_input_operator.reconcile.plan import Plan

_P = "distributed_input_operator"
_INPUT = ("namespace", "input")
RESOURCES = ("workers", "cpu", "memory")
"""As in an Amount."""

RECONCILES = Counter(f"{_P}_reconciles_total", "Looks at inputs.", ["result"])
SECONDS = Histogram(f"{_P}_reconcile_seconds", "How long a look takes.")
WRITES = Counter(f"{_P}_writes_total", "Requests that change something.", ["resource"])
LEADER = Gauge(f"{_P}_leader", "1 where this replica works, 0 where it stands by.")
INJECTIONS = Counter(f"{_P}_injections_total", "Trainer pods that were looked at.", ["result"])
INJECTION_SECONDS = Histogram(f"{_P}_injection_seconds", "How long a pod is looked at.")
DESIRED = Gauge("distributed_input_workers_desired", "Workers that there should be.", _INPUT)
READY = Gauge("distributed_input_workers_ready", "Workers that serve.", _INPUT)
ASKED = Gauge(
    "distributed_input_workers_asked", "Workers that there would be without budgets.", _INPUT
)
LIMITED = Gauge(
    "distributed_input_workers_limited",
    "Workers that were asked for and not granted, and why.",
    [*_INPUT, "budget", "message"],
)
BUDGET = Gauge(
    "distributed_input_budget",
    "Of a budget: what is used, its limit, what it guarantees; CPUs, bytes, workers.",
    ["budget", "resource", "what"],
)
RECOMMENDED = Gauge(
    "distributed_input_workers_recommended",
    "Workers that the trainers could keep busy: what autoscaling goes by.",
    _INPUT,
)
STALL = Gauge("distributed_input_stall_ratio", "Share of time that trainers wait, 0 to 1.", _INPUT)
ROWS = Gauge("distributed_input_rows_per_second", "Rows a second over all trainers.", _INPUT)
_OF_INPUTS = (ASKED, DESIRED, READY, RECOMMENDED, STALL, ROWS)
_limited: dict[InputKey, tuple[str, str]] = {}
"""The budget and message that each limited input was last shown with."""


def show(key: InputKey, snapshot: Snapshot, made: Plan) -> None:
    """Set the gauges of an input."""
    DESIRED.labels(*key).set(made.desired)
    ASKED.labels(*key).set(made.asked)
    _show_limit(key, made)
    READY.labels(*key).set(ready_workers(snapshot))
    measured = snapshot.measured
    _set(RECOMMENDED, key, recommended(measured, parallelism(snapshot.resource)))
    _set(STALL, key, measured.stall if measured else None)
    _set(ROWS, key, measured.rows_per_second if measured else None)


def _set(gauge: Gauge, key: InputKey, value: float | None) -> None:
    """What is not known is not told: an autoscaler would go by the last value for ever."""
    if value is not None:
        gauge.labels(*key).set(value)
        return
    try:
        gauge.remove(*key)
    except KeyError:
        pass  # it was not told before


def _show_limit(key: InputKey, made: Plan) -> None:
    why = (made.grant.budget, made.grant.message)
    before = _limited.get(key)
    if before is not None and before != why:
        LIMITED.remove(*key, *_limited.pop(key))
    if made.grant.message:
        LIMITED.labels(*key, *why).set(made.asked - made.desired)
        _limited[key] = why


def show_budgets(found: Iterable[tuple[Budget, Amount]]) -> None:
    """Set the gauges of all budgets, to what is used of each; others are taken away."""
    BUDGET.clear()
    for budget, used in found:
        for what, amount in (
            ("used", used),
            ("limit", budget.limits),
            ("guaranteed", budget.guaranteed),
        ):
            for resource, number, unit in zip(RESOURCES, amount, (1, 1000, 1), strict=True):
                if number != UNLIMITED:
                    BUDGET.labels(budget.name, resource, what).set(number / unit)


def forget(key: InputKey) -> None:
    """The input is gone."""
    if key in _limited:
        LIMITED.remove(*key, *_limited.pop(key))
    for gauge in _OF_INPUTS:
        _set(gauge, key, None)


def rendered() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
