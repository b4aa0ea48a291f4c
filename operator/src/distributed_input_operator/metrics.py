"""The operator's Prometheus metrics. Their names and labels are an interface."""

from __future__ import annotations

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, generate_latest

_P = "distributed_input_operator"
_INPUT = ("namespace", "input")

RECONCILES = Counter(f"{_P}_reconciles_total", "Reconciliations of inputs.", ["result"])
SECONDS = Histogram(f"{_P}_reconcile_seconds", "Duration of one reconciliation, in seconds.")
WRITES = Counter(f"{_P}_writes_total", "Write requests to the API server.", ["resource"])
LEADER = Gauge(f"{_P}_leader", "1 if this replica leads, 0 if it stands by.")
ROLLOUTS = Gauge(
    f"{_P}_rollouts",
    "Number of inputs by what their pods have of the operator's pod template: waiting, rolling, "
    "failing, updated, settled, or busy with another change.",
    ["state"],
)
INJECTIONS = Counter(f"{_P}_injections_total", "Trainer pods that the webhook handled.", ["result"])
INJECTION_SECONDS = Histogram(
    f"{_P}_injection_seconds", "Time to handle one trainer pod, in seconds."
)
CONVERSIONS = Counter(
    f"{_P}_conversions_total", "Requests to convert inputs to another version.", ["result"]
)
CONVERSION_SECONDS = Histogram(
    f"{_P}_conversion_seconds", "Time to handle one request to convert inputs, in seconds."
)
DESIRED = Gauge("distributed_input_workers_desired", "Desired number of workers.", _INPUT)
READY = Gauge("distributed_input_workers_ready", "Number of ready workers.", _INPUT)
ASKED = Gauge(
    "distributed_input_workers_asked", "Number of workers requested, before budgets.", _INPUT
)
LIMITED = Gauge(
    "distributed_input_workers_limited",
    "Number of requested workers that budgets did not grant, and the reason.",
    [*_INPUT, "budget", "message"],
)
BUDGET = Gauge(
    "distributed_input_budget",
    "Usage, limit and guarantee of a budget, in CPUs, bytes and workers.",
    ["budget", "resource", "what"],
)
RECOMMENDED = Gauge(
    "distributed_input_workers_recommended",
    "Number of workers that the trainers could keep busy. Autoscaling follows it.",
    _INPUT,
)
STALL = Gauge(
    "distributed_input_stall_ratio", "Share of time that trainers wait for input, 0 to 1.", _INPUT
)
ROWS = Gauge("distributed_input_rows_per_second", "Rows per second that all trainers read.", _INPUT)


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
