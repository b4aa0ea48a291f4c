"""The gauges of inputs."""

from __future__ import annotations

from typing import Any

from prometheus_client.core import GaugeMetricFamily

from distributed_input_operator import metrics


def test_values_may_change_while_they_are_read(monkeypatch):
    """Another thread reads them."""

    class Family(GaugeMetricFamily):
        def add_metric(self, labels: Any, value: Any, timestamp: Any = None) -> None:
            super().add_metric(labels, value, timestamp)
            metrics.STALL.set(("team", "later"), 1.0)

    try:
        metrics.STALL.set(("team", "first"), 0.5)
        metrics.STALL.set(("team", "second"), 0.5)
        monkeypatch.setattr(metrics, "GaugeMetricFamily", Family)
        (family,) = metrics.STALL.collect()
        assert [one.labels["input"] for one in family.samples] == ["first", "second"]
    finally:
        for name in ("first", "second", "later"):
            metrics.STALL.set(("team", name), None)
