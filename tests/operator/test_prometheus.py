"""The chart's dashboard and alerts, and the queries of docs/scaling.md, in a real Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from distributed_input_operator.kube.kinds import POLICY
from testing.charts.rendering import CHART
from testing.cluster.debian import AptMissingError
from testing.operator import prometheus
from testing.operator.dispatcher import dispatcher, token_of
from testing.operator.policies import apply
from testing.operator.processes import eventually, manifest
from testing.operator.scaling_docs import documented, documents
from testing.operator.webhooks import free_port

NAME = "digits"
RULES = CHART / "files" / "rules.yaml"
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
_OF = '{namespace="vision",input="digits"}'
_WHY = '{namespace="vision",input="digits",budget="all",message="1 of 3"}'
SICK = {
    "DistributedInputTrainersStall": {
        f"distributed_input_stall_ratio{_OF}": "0.5",
        f"distributed_input_workers_asked{_OF}": "3",
    },
    "DistributedInputWorkersLimited": {
        f"distributed_input_workers_limited{_WHY}": "2",
        f"distributed_input_stall_ratio{_OF}": "0.5",
    },
    "DistributedInputWorkersMissing": {
        f"distributed_input_workers_ready{_OF}": "1",
        f"distributed_input_workers_desired{_OF}": "2",
    },
    "DistributedInputNoLeader": {"distributed_input_operator_leader": "0"},
    "DistributedInputReconcilesFail": {
        'distributed_input_operator_reconciles_total{result="failed"}': "0+30",
    },
}
"""Series in which each alert fires: their value at every minute, or what it grows by in one."""
WELL = {
    "DistributedInputTrainersStall": "0.05",
    "DistributedInputWorkersLimited": "0",
    "DistributedInputWorkersMissing": "2",
    "DistributedInputNoLeader": "1",
    "DistributedInputReconcilesFail": "0+1",
}
"""The first of them where nothing is wrong."""


@pytest.fixture(scope="module", autouse=True)
def promtool() -> None:
    """Nothing here can be done without."""
    try:
        prometheus.binary("promtool")
    except AptMissingError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def scraped(
    cluster, operator, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[prometheus.Prometheus]:
    """Prometheus beside an operator with an input that stalls, and a budget for half of that."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    apply(cluster, {"name": "all", "limits": {"workers": 2, "cpu": 100}})
    scaling = {"minReplicas": 1, "maxReplicas": 6}
    cluster.create(manifest(NAME, dispatcher={"port": port}, workers={"autoscaling": scaling}))
    token = token_of(cluster, NAME)
    with (
        dispatcher(port, token, folder),
        prometheus.scraping(operator.port, RULES, folder) as found,
    ):
        cluster.play_kubelet(NAME, "dispatcher", "127.0.0.1")
        cluster.play_kubelet(NAME)
        yield found
    cluster.delete("DistributedInput", NAME)
    cluster.call("DELETE", POLICY.path(None, "cluster"))


def value(scraped: prometheus.Prometheus, expression: str) -> float:
    """The only one that it gives, once it gives any."""
    (found,) = eventually(lambda: scraped.query(expression))
    return float(found["value"][1])


@pytest.mark.timeout(300)
def test_every_panel_of_the_dashboard_shows_something(scraped):
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


def test_the_variables_of_the_dashboard_offer_the_input(scraped, cluster):
    offered = {}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            asked = variable["query"]
            asked = asked["query"] if isinstance(asked, dict) else asked
            ((metric, label),) = re.findall(r"^label_values\((.*),\s*(\w+)\)$", asked)
            metric = re.sub(r"\$(namespace|input)\b", ".*", metric)
            offered[label] = scraped.get(f"label/{label}/values", **{"match[]": metric})
    assert offered == {"namespace": [cluster.namespace], "input": [NAME]}


def test_kedas_query_and_the_adapters_give_what_is_recommended(scraped, cluster):
    asked = documented("ScaledObject")["spec"]["triggers"][0]["metadata"]["query"].replace(
        "team", cluster.namespace
    )
    # 100 rows a second in a quarter of the time are 400; a worker makes 100 while busy.
    eventually(lambda: value(scraped, asked) == 4)
    (rule,) = (one["externalRules"][0] for one in documents() if "externalRules" in one)
    filled = {
        "<<.Series>>": "distributed_input_workers_recommended",
        "<<.LabelMatchers>>": f'namespace="{cluster.namespace}",input="{NAME}"',
    }
    asked = rule["metricsQuery"]
    for name, text in filled.items():
        assert name in asked
        asked = asked.replace(name, text)
    assert value(scraped, asked) == 4
    assert scraped.query(rule["seriesQuery"])


def test_prometheus_takes_the_rules(scraped):
    checked = prometheus.promtool("check", "rules", RULES)
    assert checked.returncode == 0, checked.stderr
    (group,) = scraped.get("rules")["groups"]
    assert {one["name"] for one in group["rules"]} == set(ALERTS) == set(SICK)
    eventually(lambda: scraped.query("ALERTS"))  # it evaluates them: the input stalls
    (group,) = scraped.get("rules")["groups"]
    assert {one["health"] for one in group["rules"]} == {"ok"}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_after_its_time_and_only_where_something_is_wrong(name, tmp_path):
    minutes = int(ALERTS[name]["for"].removesuffix("m"))
    first = next(iter(SICK[name]))
    well = SICK[name] | {first: WELL[name]}
    tests = [
        _case(name, SICK[name], {minutes - 1: False, minutes + 15: True}),
        _case(name, well, {minutes + 15: False}),
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    told = prometheus.promtool("test", "rules", file)
    assert told.returncode == 0, told.stdout + told.stderr


def _case(name: str, series: dict[str, str], fires: dict[int, bool]) -> dict[str, Any]:
    """A test of promtool's: whether the alert fires, by minute."""
    length = max(fires) + 1

    def over(text: str) -> str:
        return f"{text}x{length}" if "+" in text else f"{text}+0x{length}"

    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": over(text)} for one, text in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fire else [],
            }
            for minute, fire in fires.items()
        ],
    }
