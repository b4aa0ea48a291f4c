"""The operator's metrics. Names are an interface."""

from __future__ import annotations

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

from distributed_input_operator.core.conditions import ready_workers
from distributed_input_operator.core.plan import Plan
from distributed_input_operator.core.scaling import recommended
from distributed_input_operator.core.snapshot import Snapshot
from distributed_input_operator.core.worker import parallelism
from distributed_input_operator.store import InputKey

_P = "distributed_input_operator"
_INPUT = ("namespace", "input")

RECONCILES = Counter(f"{_P}_reconciles_total", "Looks at inputs.", ["result"])
SECONDS = Histogram(f"{_P}_reconcile_seconds", "How long a look takes.")
WRITES = Counter(f"{_P}_writes_total", "Requests that change something.", ["resource"])
LEADER = Gauge(f"{_P}_leader", "1 where this replica works, 0 where it stands by.")
INJECTIONS = Counter(f"{_P}_injections_total", "Trainer pods that were looked at.", ["result"])
INJECTION_SECONDS = Histogram(f"{_P}_injection_seconds", "How long a pod is looked at.")
DESIRED = Gauge("distributed_input_workers_desired", "Workers that there should be.", _INPUT)
READY = Gauge("distributed_input_workers_ready", "Workers that serve.", _INPUT)
RECOMMENDED = Gauge(
    "distributed_input_workers_recommended",
    "Workers that the trainers could keep busy: what autoscaling goes by.",
    _INPUT,
)
STALL = Gauge("distributed_input_stall_ratio", "Share of time that trainers wait, 0 to 1.", _INPUT)
ROWS = Gauge("distributed_input_rows_per_second", "Rows a second over all trainers.", _INPUT)
_OF_INPUTS = (DESIRED, READY, RECOMMENDED, STALL, ROWS)


def show(key: InputKey, snapshot: Snapshot, made: Plan) -> None:
    """Set the gauges of an input."""
    DESIRED.labels(*key).set(made.desired)
    READY.labels(*key).set(ready_workers(snapshot))
    measured = snapshot.measured
    wanted = recommended(measured, parallelism(snapshot.resource))
    if measured is not None and wanted is not None:
        RECOMMENDED.labels(*key).set(wanted)
        STALL.labels(*key).set(measured.stall)
        ROWS.labels(*key).set(measured.rows_per_second)


def forget(key: InputKey) -> None:
    """The input is gone."""
    for gauge in _OF_INPUTS:
        try:
            gauge.remove(*key)
        except KeyError:
            pass  # it never had this one


def rendered() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
