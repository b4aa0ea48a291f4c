"""Serves v1beta1 on a real API server, as the chart does with `crds.v1beta1`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from distributed_input.api import names
from distributed_input_operator.kube.kinds import INPUT
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually
from testing.operator.webhooks import Webhook, run_webhook

Json = dict[str, Any]
DEFINITION = "distributedinputs.distributed-input.dev"
DEFINITION_PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}"
_FILE = Path(__file__).parents[2] / "crds" / "distributedinputs.yaml"


@contextmanager
def serve_beta(cluster: Cluster, kubeconfig: Path, folder: Path) -> Iterator[Webhook]:
    """Run an operator and a webhook that converts. Serve v1beta1 until the end."""
    flags = ("--conversion-definition", DEFINITION)
    with run_webhook(cluster, kubeconfig, folder, *flags) as webhook:
        set_definition(cluster, versions(beta=True), conversion(webhook.port))
        try:
            eventually(lambda: served(cluster))
            yield webhook
        finally:
            set_definition(cluster, versions(beta=False), {"strategy": "None", "webhook": None})


def versions(beta: bool, storage: str = "v1alpha1") -> list[Json]:
    """Return the versions of the definition."""
    found = yaml.safe_load(_FILE.read_text())["spec"]["versions"]
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


def set_definition(cluster: Cluster, found: list[Json], how: Json | None = None) -> None:
    """Change versions of the definition of inputs, and the conversion if it is given."""
    patch = {"spec": {"versions": found, **({"conversion": how} if how else {})}}
    cluster.call("PATCH", DEFINITION_PATH, patch, "application/merge-patch+json")


def beta_path(cluster: Cluster, name: str = "") -> str:
    """Return the path of inputs as v1beta1."""
    return INPUT.path(cluster.namespace, name).replace("v1alpha1", "v1beta1")


def served(cluster: Cluster) -> bool:
    """Whether the API server converts an input of this namespace."""
    body = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": "converted"},
        "spec": {},
    }
    try:
        cluster.call("POST", beta_path(cluster), body, dryRun="All")
    except RequestRejected:
        return False
    return True
