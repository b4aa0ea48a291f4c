"""The chart's alerts and dashboard, which use metrics that the operator exports."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from distributed_input_operator.controller import input_metrics
from testing.charts.rendering import CHART, find_one, manifests
from testing.cluster.debian import AptMissingError
from testing.operator.documentation import documented_manifest
from testing.operator.prometheus import Prometheus, run_prometheus, scrape_config
from testing.operator.prometheus import binary as prometheus_binary

RULES = CHART / "files" / "rules.yaml"
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
BUDGET = "distributed_input_budget"
ON = ("prometheusRule.enabled=true", "grafanaDashboard.enabled=true")


def test_rules_and_dashboard_use_only_existing_metrics():
    known = {
        name
        for family in REGISTRY.collect()
        for name in (family.name, f"{family.name}_total", f"{family.name}_bucket")
    }
    assert input_metrics.RESOURCES == ("workers", "cpu", "memory")
    for text in (*QUERIES, RULES.read_text()):
        for name in re.findall(r"\bdistributed_input_\w+", text):
            assert name in known, name


TEAMS = {"a": 0.5, "b": 0.75}
"""Namespaces that have an input of the same name, and values of its series."""
INPUT = "digits"
TARGET = {"namespace": "monitored", "pod": "operator-0", "job": "scraped"}
"""The labels of a target, which Prometheus adds to its series."""


def exposition(names: Iterable[str], **labels: str) -> str:
    """Return series of the input of each namespace in Prometheus' text format.

    The wish is one worker more than there is, so that all alerts about inputs fire.
    """
    lines = []
    for name, (namespace, value) in itertools.product(sorted(names), TEAMS.items()):
        text = {"namespace": namespace, "input": INPUT, **labels}
        value += name.endswith(("_asked", "_desired"))
        listed = ",".join(f'{key}="{one}"' for key, one in text.items())
        lines.append(f"{name}{{{listed}}} {value}\n")
    return "".join(lines)


@contextmanager
def exporter(text: str) -> Iterator[int]:
    """Serve metrics, and provide the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def per_input(queries: Iterable[str]) -> set[str]:
    """Return the metrics of inputs in queries."""
    found = {name for query in queries for name in re.findall(r"\bdistributed_input_\w+", query)}
    return {name for name in found if not name.startswith(("distributed_input_operator", BUDGET))}


def alerts() -> list[str]:
    """Return the expressions of the alerts about inputs."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return [one["expr"] for one in group["rules"] if "namespace" in one["expr"]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes inputs of one name in two namespaces as the chart says."""
    try:
        prometheus_binary("prometheus")
    except AptMissingError as missing:
        pytest.skip(str(missing))
    monitor = find_one(manifests("here", "serviceMonitor.enabled=true"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    folder = tmp_path_factory.mktemp("prometheus")
    with exporter(exposition(per_input([*QUERIES, *alerts()]))) as port:
        scrape = scrape_config(port, endpoint, TARGET)
        with run_prometheus(scrape, RULES, folder) as found:
            yield found


def namespaces(found: list[dict[str, Any]]) -> list[str]:
    return sorted(one["metric"]["namespace"] for one in found)


def test_each_input_has_its_own_alerts(server):
    for expression in alerts():
        assert namespaces(server.query(expression)) == [*TEAMS], expression


def test_the_dashboard_separates_inputs_of_the_same_name(server):
    queries = [query for query in QUERIES if per_input([query])]
    assert len(queries) > 5
    for query in queries:
        query = query.replace("$input", INPUT)
        values = []
        for namespace in TEAMS:
            (one,) = server.query(query.replace("$namespace", namespace))
            values.append(float(one["value"][1]) % 1)
        assert values == [*TEAMS.values()], query
        if not query.startswith("sum("):
            assert namespaces(server.query(query.replace("$namespace", ".*"))) == [*TEAMS], query


def test_the_query_for_keda_returns_the_value_of_one_input(server):
    (trigger,) = documented_manifest("ScaledObject")["spec"]["triggers"]
    for namespace, value in TEAMS.items():
        (one,) = server.query(trigger["metadata"]["query"].replace("team", namespace))
        assert float(one["value"][1]) == value


def test_a_pod_cannot_set_the_namespace_of_its_series(tmp_path):
    """Its label `job` is that of the input, not that of the scrape."""
    try:
        prometheus_binary("prometheus")
    except AptMissingError as missing:
        pytest.skip(str(missing))
    found = manifests("here", "podMonitor.enabled=true")
    endpoints = [
        endpoint
        for one in found
        if one["kind"] == "PodMonitor"
        for endpoint in one["spec"]["podMetricsEndpoints"]
    ]
    assert len({json.dumps(one["metricRelabelings"]) for one in endpoints}) == 1
    metric = "distributed_input_dispatcher_consumers"
    with (
        exporter(f'{metric}{{namespace="other",job="night"}} 1\n') as port,
        run_prometheus(scrape_config(port, endpoints[0], TARGET), RULES, tmp_path) as server,
    ):
        (one,) = server.query(metric)
    assert one["metric"]["namespace"] == "monitored"
    assert one["metric"]["job"] == "night"
    assert "exported_job" not in one["metric"]


def test_every_alert_has_a_summary_a_severity_and_a_duration():
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for alert in group["rules"]:
            assert alert["labels"]["severity"] in {"info", "warning", "critical"}
            assert alert["annotations"]["summary"]
            assert alert["for"]


def test_the_chart_contains_rules_and_dashboard_if_they_are_enabled():
    found = manifests("here", *ON)
    rules = find_one(found, "PrometheusRule")["spec"]
    assert rules == yaml.safe_load(RULES.read_text())
    config = find_one(found, "ConfigMap", "-dashboard")
    assert json.loads(config["data"]["distributed-input.json"]) == DASHBOARD
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert "PrometheusRule" not in {each["kind"] for each in manifests("here")}
