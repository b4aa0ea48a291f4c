"""The chart's alerts and dashboard, which use metrics that the operator exports."""

from __future__ import annotations

import json
import re

import yaml
from prometheus_client import REGISTRY

from distributed_input_operator.controller import input_metrics
from testing.charts.rendering import CHART, find_one, manifests

RULES = CHART / "files" / "rules.yaml"
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
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
