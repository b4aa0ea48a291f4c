"""Values of the chart for a platform: labels, registry, network and nodes."""

from __future__ import annotations

from typing import Any

import yaml

from distributed_input.api import environment
from distributed_input_operator.webhook.main import parser as webhook_parser
from testing.charts.rendering import OPERATOR, WEBHOOK, container, find_one, manifests, render


def test_common_labels_are_on_all_objects_and_pods_and_keep_the_selectors():
    values = ("commonLabels.team=ml", "podDisruptionBudget.enabled=true")
    monitors = [f"{one}.enabled=true" for one in ("serviceMonitor", "podMonitor", "prometheusRule")]
    made = [one for one in yaml.safe_load_all(render("here", *values, *monitors)) if one]
    assert len(made) > 20
    assert [one["metadata"]["name"] for one in made if labels_of(one).get("team") != "ml"] == []
    for name in (OPERATOR, WEBHOOK):
        plain, labelled = (
            find_one(manifests("here", *more), "Deployment", name)["spec"] for more in ((), values)
        )
        assert labelled["selector"] == plain["selector"]
        pods = labelled["template"]
        assert labels_of(pods) == {**labels_of(plain["template"]), "team": "ml"}


def labels_of(one: dict[str, Any]) -> dict[str, str]:
    return one["metadata"].get("labels") or {}


def test_a_common_label_does_not_replace_one_of_the_chart():
    values = ('json:commonLabels={"app.kubernetes.io/name": "mine"}',)
    for one in manifests("here", *values):
        if one["kind"] != "CustomResourceDefinition":
            assert labels_of(one)["app.kubernetes.io/name"] == "distributed-input"


def test_the_registry_is_that_of_all_images():
    mirror = "registry.example/mirror"
    values = (f"images.registry={mirror}", f"images.worker.digest=sha256:{64 * 'a'}")
    for name in (OPERATOR, WEBHOOK):
        process = container(name, *values)
        env = {one["name"]: one.get("value", "") for one in process["env"]}
        assert process["image"].startswith(f"{mirror}/distributed-input-operator:")
        sidecar = env[environment.SIDECAR_IMAGE_ENV]
        assert sidecar.startswith(f"{mirror}/distributed-input-sidecar:")
        worker = f"{mirror}/distributed-input-worker@sha256:{64 * 'a'}"
        assert env[environment.WORKER_IMAGE_ENV] == worker
    assert container(OPERATOR)["image"].startswith("distributed-input-operator:")


def webhook_pod(*values: str) -> dict[str, Any]:
    """Return the spec of the webhook's Deployment."""
    found: dict[str, Any] = find_one(manifests("here", *values), "Deployment", WEBHOOK)["spec"]
    return found


def test_the_webhook_can_use_the_network_of_the_nodes():
    plain = webhook_pod()
    assert {"hostNetwork", "dnsPolicy"}.isdisjoint(plain["template"]["spec"])
    spec = webhook_pod("webhook.hostNetwork=true", "webhook.healthPort=18080")
    pod = spec["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    (process,) = pod["containers"]
    assert webhook_parser().parse_args(process["args"]).listen == ":18080"
    assert {one["name"]: one["containerPort"] for one in process["ports"]} == {
        "health": 18080,
        "webhook": 9443,
    }
    assert webhook_pod("webhook.dnsPolicy=Default")["template"]["spec"]["dnsPolicy"] == "Default"


def test_all_pods_of_the_release_run_on_linux():
    for name in (OPERATOR, WEBHOOK):
        found = find_one(manifests("here", "nodeSelector.pool=system"), "Deployment", name)
        assert found["spec"]["template"]["spec"]["nodeSelector"] == {
            "kubernetes.io/os": "linux",
            "pool": "system",
        }
