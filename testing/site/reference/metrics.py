"""The page about metrics, from their definitions."""

from __future__ import annotations

from prometheus_client.metrics import MetricWrapperBase

from distributed_input.runtime import metrics
from distributed_input_operator import metrics as of_operator
from testing.site.reference.markdown import code, path, table

_HEAD = ("Metric", "Type", "Labels", "Meaning")


def page() -> str:
    """Return the page."""
    return (
        "# Metrics\n\nProcesses serve Prometheus metrics under `/metrics`. Times are in seconds, "
        "sizes in bytes.\n\n## Workers, sidecars and dispatchers\n\nThe flag `--metrics-listen` "
        "sets the address. The operator sets it in pods.\n\n"
        + table(_HEAD, sorted(_data_plane()))
        + "## Operator and webhook\n\n"
        + table(_HEAD, sorted(_operator()))
    )


def _data_plane() -> list[list[str]]:
    found = [one for one in vars(metrics).values() if isinstance(one, metrics.Definition)]
    return [[path(one.name), one.kind, _labels(one.labels), one.help] for one in found]


def _operator() -> list[list[str]]:
    found = [one for one in vars(of_operator).values() if isinstance(one, MetricWrapperBase)]
    inputs = [one for one in vars(of_operator).values() if isinstance(one, of_operator.InputGauge)]
    return [[path(one.name), "gauge", _labels(one.labels), one.documentation] for one in inputs] + [
        [
            path(one._name + "_total" * (one._type == "counter")),
            str(one._type),
            _labels(one._labelnames),
            one._documentation,
        ]
        for one in found
    ]


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(map(code, names))
