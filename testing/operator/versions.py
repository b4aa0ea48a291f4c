"""Serves v1beta1 on a real API server, as the chart does with `crds.v1beta1`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from distributed_input.api import names
from distributed_input_operator.kube.kinds import INPUT, POLICY
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually
from testing.operator.webhooks import Webhook, run_webhook

Json = dict[str, Any]
PLURALS = ("distributedinputs", "inputpolicies")
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION_PATH = f"{_DEFINITIONS}/distributedinputs.distributed-input.dev"
POLICY_PATH = POLICY.path(None, "cluster").replace("v1alpha1", "v1beta1")
"""The path of the policy as v1beta1."""
_FOLDER = Path(__file__).parents[2] / "crds"


@contextmanager
def serve_beta(cluster: Cluster, kubeconfig: Path, folder: Path) -> Iterator[Webhook]:
    """Run an operator and a webhook that converts. Serve v1beta1 until the end."""
    flags = [f"--conversion-definition={one}.{INPUT.group}" for one in PLURALS]
    with run_webhook(cluster, kubeconfig, folder, *flags) as webhook:
        for one in PLURALS:
            set_definition(cluster, versions(True, plural=one), conversion(webhook.port), one)
        try:
            eventually(lambda: served(cluster))
            yield webhook
        finally:
            for one in PLURALS:
                none = {"strategy": "None", "webhook": None}
                set_definition(cluster, versions(False, plural=one), none, one)


def versions(beta: bool, storage: str = "v1alpha1", plural: str = PLURALS[0]) -> list[Json]:
    """Return the versions of a definition."""
    found = yaml.safe_load((_FOLDER / f"{plural}.yaml").read_text())["spec"]["versions"]
    return [
        {
            **one,
            "served": beta or one["name"] == "v1alpha1",
            "storage": one["name"] == storage,
        }
        for one in found
    ]


def conversion(port: int) -> Json:
    """Return the conversion by a webhook on this machine."""
    client = {"url": f"https://localhost:{port}{names.CONVERSION_PATH}"}
    return {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
    }


def set_definition(
    cluster: Cluster, found: list[Json], how: Json | None = None, plural: str = PLURALS[0]
) -> None:
    """Change versions of a definition, and the conversion if it is given."""
    patch = {"spec": {"versions": found, **({"conversion": how} if how else {})}}
    path = f"{_DEFINITIONS}/{plural}.{INPUT.group}"
    cluster.call("PATCH", path, patch, "application/merge-patch+json")


def set_conversion(cluster: Cluster, port: int) -> None:
    """Convert by a webhook on this machine, in definitions that the chart has installed."""
    for one in PLURALS:
        # JSON merge patches replace no Service by a URL.
        change = {"op": "replace", "path": "/spec/conversion", "value": conversion(port)}
        path = f"{_DEFINITIONS}/{one}.{INPUT.group}"
        cluster.call("PATCH", path, [change], "application/json-patch+json")


def beta_path(cluster: Cluster, name: str = "") -> str:
    """Return the path of inputs as v1beta1."""
    return INPUT.path(cluster.namespace, name).replace("v1alpha1", "v1beta1")


def served(cluster: Cluster) -> bool:
    """Whether the API server converts inputs of this namespace, and the policy."""
    body = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": "converted"},
        "spec": {},
    }
    policy = {**body, "kind": POLICY.kind, "metadata": {"name": "cluster"}}
    apply = "application/apply-patch+yaml"
    try:
        cluster.call("POST", beta_path(cluster), body, dryRun="All")
        cluster.call("PATCH", POLICY_PATH, policy, apply, dryRun="All", fieldManager="probe")
    except RequestRejected:
        return False
    return True
