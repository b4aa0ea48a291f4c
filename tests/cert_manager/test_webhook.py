"""cert-manager issues the webhook's certificate, and writes the caBundle."""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.charts.rendering import WEBHOOK, find_one, manifests
from testing.ecosystem.cert_manager import apply
from testing.operator.cluster import Cluster, Json, RequestRejected
from testing.operator.processes import eventually
from testing.operator.webhooks import CONFIGURATIONS, WebhookServer, configuration, free_port, pod

INJECT = "cert-manager.io/inject-ca-from"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Served:
    """A webhook with the files of cert-manager's Secret, as the kubelet mounts them."""

    def __init__(self, cluster: Cluster, folder: Path, port: int, chart: Json) -> None:
        self.cluster, self.folder, self.port, self.chart = cluster, folder, port, chart
        self.name = f"cm-{cluster.namespace}"

    def secret(self) -> dict[str, bytes]:
        """Return the fields of the Secret. Empty: there is none yet."""
        found = self.cluster.get("Secret", WEBHOOK) or {}
        data = {key: base64.b64decode(one) for key, one in (found.get("data") or {}).items()}
        return data if data.get("tls.crt") else {}

    def mount(self) -> None:
        """Write the Secret into the folder."""
        for key, value in self.secret().items():
            new = self.folder / f".{key}"
            new.write_bytes(value)
            os.replace(new, self.folder / key)

    def bundle(self) -> bytes:
        """Return the caBundle in the webhook configuration."""
        found = self.cluster.call("GET", f"{CONFIGURATIONS}/{self.name}")["webhooks"][0]
        return base64.b64decode(found["clientConfig"].get("caBundle", ""))

    def is_called(self) -> bool:
        """Whether the API server trusts the webhook, which refuses an input that is not there."""
        try:
            self.cluster.call("POST", self.cluster.path("Pod"), pod("no-such-input"), dryRun="All")
        except RequestRejected as error:
            return "no-such-input" in str(error)
        return False


@pytest.fixture(scope="module")
def served(cluster: Cluster, platform: str, control_plane, tmp_path_factory) -> Iterator[Served]:
    """Run the webhook with the certificate that the chart requests."""
    values = ("webhook.certManager.enabled=true", f"webhook.certManager.issuerRef.name={platform}")
    objects = manifests(cluster.namespace, *values)
    chart = find_one(objects, "Certificate")
    chart["spec"]["dnsNames"].append("localhost")  # there is no Service network
    apply(cluster, chart)
    folder, port = tmp_path_factory.mktemp("webhook"), free_port()
    one = Served(cluster, folder, port, chart)
    created = configuration(one.name, cluster.namespace, port)
    annotations = find_one(objects, "MutatingWebhookConfiguration")["metadata"]["annotations"]
    created["metadata"]["annotations"] = annotations
    cluster.call("POST", CONFIGURATIONS, created)
    eventually(one.secret)
    one.mount()
    flags = ("--webhook-listen", f"127.0.0.1:{port}", "--webhook-certificate", str(folder))
    server = WebhookServer(control_plane.kubeconfig, cluster.namespace, folder, *flags)
    try:
        yield one
    except BaseException:
        print(server.read_log())
        raise
    finally:
        server.stop()
        cluster.call("DELETE", f"{CONFIGURATIONS}/{one.name}")


def test_the_api_server_calls_a_webhook_with_a_certificate_of_cert_manager(served):
    eventually(lambda: served.bundle() == served.secret()["ca.crt"])
    eventually(served.is_called)


def test_a_renewed_certificate_is_served_without_a_restart(served):
    before = served.secret()
    spec = {**served.chart["spec"], "dnsNames": [*served.chart["spec"]["dnsNames"], "more.example"]}
    apply(served.cluster, {**served.chart, "spec": spec})  # cert-manager issues it again

    def is_renewed() -> bool:
        return served.secret().get("tls.crt") not in (before["tls.crt"], None)

    eventually(is_renewed)
    served.mount()

    def is_served() -> bool:
        presented = ssl.get_server_certificate(("127.0.0.1", served.port)).encode()
        return served.secret()["tls.crt"].startswith(presented)

    eventually(is_served)
    eventually(served.is_called)
