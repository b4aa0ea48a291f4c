"""The chart's dashboard and alerts, and the queries in docs/scaling.md, with a real Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from distributed_input_operator.kube.kinds import POLICY
from testing.charts.rendering import CHART, find_one, manifests
from testing.cluster.debian import AptMissingError
from testing.operator import prometheus
from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.documentation import documented_manifest, documented_yaml
from testing.operator.policies import apply_policy
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import free_port

NAME = "digits"
RULES = CHART / "files" / "rules.yaml"
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
_INPUT_LABELS = '{namespace="vision",input="digits"}'
_LIMIT_LABELS = '{namespace="vision",input="digits",budget="all"}'
FIRING = {
    "DistributedInputTrainersStall": {
        f"distributed_input_stall_ratio{_INPUT_LABELS}": "0.5",
        f"distributed_input_workers_asked{_INPUT_LABELS}": "3",
    },
    "DistributedInputWorkersLimited": {
        f"distributed_input_workers_limited{_LIMIT_LABELS}": "2",
        f"distributed_input_stall_ratio{_INPUT_LABELS}": "0.5",
    },
    "DistributedInputWorkersMissing": {
        f"distributed_input_workers_ready{_INPUT_LABELS}": "1",
        f"distributed_input_workers_desired{_INPUT_LABELS}": "2",
    },
    "DistributedInputNoLeader": {"distributed_input_operator_leader": "0"},
    "DistributedInputRolloutStopped": {
        'distributed_input_operator_rollouts{state="failing"}': "1",
        'distributed_input_operator_rollouts{state="waiting"}': "3",
    },
    "DistributedInputReconcilesFail": {
        'distributed_input_operator_reconciles_total{result="failed"}': "0+30",
    },
}
"""Series for which each alert fires: a constant value, or `start+increment` per minute."""
HEALTHY = {
    "DistributedInputTrainersStall": "0.05",
    "DistributedInputWorkersLimited": "0",
    "DistributedInputWorkersMissing": "2",
    "DistributedInputNoLeader": "1",
    "DistributedInputRolloutStopped": "0",
    "DistributedInputReconcilesFail": "0+1",
}
"""Values of the first series of each alert for which it does not fire."""


LASTING = [name for name, series in FIRING.items() if "namespace" in next(iter(series))]
"""Alerts about one input."""


@pytest.fixture(scope="module", autouse=True)
def promtool() -> None:
    """Skip all tests of this file if promtool is not available."""
    try:
        prometheus.binary("promtool")
    except AptMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def scraped(
    cluster, operator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[prometheus.Prometheus]:
    """Run Prometheus and an operator with a stalled input and a budget of half its demand."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    apply_policy(cluster, {"name": "all", "limits": {"workers": 2, "resources": {"cpu": 100}}})
    scaling = {"minReplicas": 1, "maxReplicas": 6}
    cluster.create(manifest(NAME, dispatcher={"port": port}, workers={"autoscaling": scaling}))
    token = token_of(cluster, NAME)
    labels = {"namespace": "operators", "pod": "operator-0"}
    monitor = find_one(manifests("here", "serviceMonitor.enabled=true"), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    scrape = prometheus.scrape_config(operator.port, endpoint, labels)
    with (
        run_dispatcher(port, token, folder),
        prometheus.run_prometheus(scrape, RULES, folder) as found,
    ):
        cluster.run_pods(NAME)
        yield found
    cluster.delete("DistributedInput", NAME)
    cluster.call("DELETE", POLICY.path(None, "cluster"))


def value(scraped: prometheus.Prometheus, expression: str) -> float:
    """Wait for the only series of an expression and return its value."""
    (found,) = eventually(lambda: scraped.query(expression))
    return float(found["value"][1])


@pytest.mark.timeout(300)
def test_every_panel_of_the_dashboard_has_data(scraped):
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            query = re.sub(r"\$(namespace|input)\b", ".*", target["expr"])
            assert "$" not in query

            def series(query: str = query) -> list[dict[str, Any]]:
                found = scraped.query(query)
                return [one for one in found if one["value"][1] != "NaN"]

            labels = eventually(series)[0]["metric"]
            for named in re.findall(r"{{(\w+)}}", target.get("legendFormat", "")):
                assert named in labels, (panel["title"], named)


def test_the_variables_of_the_dashboard_contain_the_input(scraped, cluster):
    values = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            query = variable["query"]
            query = query["query"] if isinstance(query, dict) else query
            ((metric, label),) = re.findall(r"^label_values\((.*),\s*(\w+)\)$", query)
            metric = re.sub(r"\$(namespace|input)\b", ".*", metric)
            values[label] = scraped.get(f"label/{label}/values", **{"match[]": metric})
    assert values == {"namespace": [cluster.namespace], "input": [NAME]}


def test_the_queries_of_keda_and_the_adapter_return_the_recommendation(scraped, cluster):
    query = documented_manifest("ScaledObject")["spec"]["triggers"][0]["metadata"]["query"].replace(
        "team", cluster.namespace
    )
    # The trainer reads 100 rows/s in 25% of its time: it could read 400. A worker makes 100.
    eventually(lambda: value(scraped, query) == 4)
    (rule,) = (one["externalRules"][0] for one in documented_yaml() if "externalRules" in one)
    filled = {
        "<<.Series>>": "distributed_input_workers_recommended",
        "<<.LabelMatchers>>": f'namespace="{cluster.namespace}",input="{NAME}"',
    }
    query = rule["metricsQuery"]
    for name, text in filled.items():
        assert name in query
        query = query.replace(name, text)
    assert value(scraped, query) == 4
    assert scraped.query(rule["seriesQuery"])


def test_prometheus_accepts_the_rules(scraped):
    result = prometheus.promtool("check", "rules", RULES)
    assert result.returncode == 0, result.stderr
    (group,) = scraped.get("rules")["groups"]
    assert {one["name"] for one in group["rules"]} == set(ALERTS) == set(FIRING)
    eventually(lambda: scraped.query("ALERTS"))  # evaluated, because the input stalls
    (group,) = scraped.get("rules")["groups"]
    assert {one["health"] for one in group["rules"]} == {"ok"}


@pytest.mark.parametrize("name", LASTING)
def test_an_alert_fires_after_its_duration_although_other_labels_change(name, tmp_path):
    """The operator restarts, and the reason of a limit changes, every 5 minutes."""
    minutes = int(ALERTS[name]["for"].removesuffix("m"))
    count = minutes // 5 + 4
    case = _case(name, {}, {minutes - 1: False, minutes + 10: True})
    case["input_series"] = [
        {
            "series": _with_labels(one, pod=f"operator-{number}", message=f"{number} of 9"),
            "values": " ".join(["_"] * (5 * number) + [text] * 5 + ["stale"]),
        }
        for one, text in FIRING[name].items()
        for number in range(count)
    ]
    _check(tmp_path, [case])


def _with_labels(series: str, **labels: str) -> str:
    """Return a series with more labels. A label that it has gets the new value."""
    name, _, rest = series.rstrip("}").partition("{")
    found = dict(re.findall(r'(\w+)="([^"]*)"', rest)) | labels
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in found.items()) + "}"


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_after_its_duration_and_only_for_its_condition(name, tmp_path):
    minutes = int(ALERTS[name]["for"].removesuffix("m"))
    first = next(iter(FIRING[name]))
    healthy = FIRING[name] | {first: HEALTHY[name]}
    tests = [
        _case(name, FIRING[name], {minutes - 1: False, minutes + 15: True}),
        _case(name, healthy, {minutes + 15: False}),
    ]
    _check(tmp_path, tests)


def _check(folder: Path, tests: list[dict[str, Any]]) -> None:
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    result = prometheus.promtool("test", "rules", file)
    assert result.returncode == 0, result.stdout + result.stderr


def _case(name: str, series: dict[str, str], expected: dict[int, bool]) -> dict[str, Any]:
    """Return a promtool test. fires: whether the alert fires, by minute."""
    length = max(expected) + 1

    def values(text: str) -> str:
        return f"{text}x{length}" if "+" in text else f"{text}+0x{length}"

    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values(text)} for one, text in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fire else [],
            }
            for minute, fire in expected.items()
        ],
    }
