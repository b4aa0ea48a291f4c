"""The operator's Prometheus metrics. Their names and labels are an interface."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_P = "distributed_input_operator"
INPUT_LABELS = ("namespace", "input")


class InputGauge(Collector):
    """A gauge with at most one value for each input.

    With a `Gauge`, each value would need 700 bytes.

    Args:
        name: of the gauge.
        documentation: of the gauge.
        labels: names of the labels besides those of the input.
    """

    def __init__(self, name: str, documentation: str, *labels: str) -> None:
        """Create and register a gauge without values."""
        self.name, self.documentation = name, documentation
        self.labels = (*INPUT_LABELS, *labels)
        self._values: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = {}
        REGISTRY.register(self)

    def set(self, key: tuple[str, str], value: float | None, *labels: str) -> None:
        """Set the value of an input: its namespace and name. None: it has no value."""
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = float(value), labels

    def describe(self) -> Iterator[Metric]:
        """Yield the gauge without values."""
        yield GaugeMetricFamily(self.name, self.documentation, labels=self.labels)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge with its values."""
        family = GaugeMetricFamily(self.name, self.documentation, labels=self.labels)
        # In another thread. copy() runs no Python code, so nothing changes the values meanwhile.
        for key, (value, labels) in self._values.copy().items():
            family.add_metric((*key, *labels), value)
        yield family


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
CHANNELS = Gauge(
    f"{_P}_dispatcher_channels",
    "Number of connections to dispatchers that the operator keeps while trainers read.",
)
INJECTIONS = Counter(f"{_P}_injections_total", "Trainer pods that the webhook handled.", ["result"])
INJECTION_SECONDS = Histogram(
    f"{_P}_injection_seconds", "Time to handle one trainer pod, in seconds."
)
DESIRED = InputGauge("distributed_input_workers_desired", "Desired number of workers.")
READY = InputGauge("distributed_input_workers_ready", "Number of ready workers.")
ASKED = InputGauge(
    "distributed_input_workers_asked", "Number of workers requested, before budgets."
)
LIMITED = InputGauge(
    "distributed_input_workers_limited",
    "Number of requested workers that a budget did not grant. The condition has the reason.",
    "budget",
)
BUDGET = Gauge(
    "distributed_input_budget",
    "Usage, limit and guarantee of a budget, in CPUs, bytes and workers.",
    ["budget", "resource", "what"],
)
RECOMMENDED = InputGauge(
    "distributed_input_workers_recommended",
    "Number of workers that the trainers could keep busy. Autoscaling follows it.",
)
STALL = InputGauge(
    "distributed_input_stall_ratio", "Share of time that trainers wait for input, 0 to 1."
)
ROWS = InputGauge("distributed_input_rows_per_second", "Rows per second that all trainers read.")


def exposition() -> bytes:
    """Return all metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
