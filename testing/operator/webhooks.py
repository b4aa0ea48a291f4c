"""Runs the injection webhook with a real API server, and creates trainer pods."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed_input.api import environment, names
from distributed_input_operator.injection.rank import OWNERS
from distributed_input_operator.kube.kinds import SECRET
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import Operator, eventually, run_operator

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
WEBHOOK = "inject.distributed-input.dev"
Json = dict[str, Any]


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def configuration(name: str, namespace: str, port: int) -> Json:
    """Return the chart's webhook configuration with a URL instead of a Service."""
    webhook = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": f"https://localhost:{port}{names.WEBHOOK_PATH}"},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
            }
        ],
        "objectSelector": {"matchLabels": {names.INJECT_LABEL: "true"}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 10,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


class WebhookServer(Operator):
    """One replica of the webhook."""

    module = "distributed_input_operator.webhook"


class Webhook:
    """An operator and a server of the injection webhook, for one namespace."""

    def __init__(
        self, cluster: Cluster, operator: Operator, server: WebhookServer, name: str, port: int
    ) -> None:
        self.cluster = cluster
        self.operator = operator
        self.server = server
        self.name = name
        self.port = port

    @property
    def configuration_path(self) -> str:
        """Return the path of the webhook configuration."""
        return f"{CONFIGURATIONS}/{self.name}"

    def bundle(self) -> bytes:
        """Return the CA bundle that the API server trusts."""
        webhook = self.cluster.call("GET", self.configuration_path)["webhooks"][0]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))

    def secret(self) -> Json:
        """Return the Secret with the certificate."""
        path = SECRET.path(self.cluster.namespace, names.WEBHOOK_SECRET)
        return self.cluster.call("GET", path)

    def wait_until_called(self) -> None:
        """Wait until the API server has loaded the webhook configuration."""

        def is_called() -> bool:
            try:
                self.create(pod("no-such-input"), dryRun="All")
            except RequestRejected as error:
                return "no-such-input" in str(error)
            return False

        eventually(is_called)

    def create(self, manifest: Json, **query: str) -> Json:
        """Create a pod or workload. Raises RequestRejected."""
        kind, version = manifest["kind"], manifest["apiVersion"]
        for one in OWNERS:  # Volcano has a Job, too
            if (one.kind, one.api_version) == (kind, version):
                return self.cluster.call(
                    "POST", one.path(self.cluster.namespace), manifest, **query
                )
        return self.cluster.call("POST", self.cluster.path(kind), manifest, **query)

    def wait_for_pods(self, label: str, count: int) -> list[Json]:
        """Wait for exactly `count` pods with a label and return them."""

        def exact_pods() -> list[Json]:
            found = self.cluster.list("Pod", label)
            return found if len(found) == count else []

        return eventually(exact_pods)


@contextmanager
def run_webhook(cluster: Cluster, kubeconfig: Path, folder: Path, *more: str) -> Iterator[Webhook]:
    """Run an operator and the webhook for the cluster's namespace, with more flags of both."""
    port, name = free_port(), f"di-{cluster.namespace}"
    cluster.call("POST", CONFIGURATIONS, configuration(name, cluster.namespace, port))
    configured = ("--webhook-configuration", name, *more)
    flags = ("--namespace", cluster.namespace, "--webhook-host", "localhost", *configured)
    try:
        with run_operator(kubeconfig, cluster.namespace, folder, *flags) as operator:
            listen = ("--webhook-listen", f"127.0.0.1:{port}")
            server = WebhookServer(kubeconfig, cluster.namespace, folder, *listen, *configured)
            try:
                created = Webhook(cluster, operator, server, name, port)
                eventually(lambda: server.get("/readyz")[0] == 200)
                created.wait_until_called()
                yield created
            except BaseException:
                print(server.read_log())
                raise
            finally:
                server.stop()
    finally:
        cluster.call("DELETE", f"{CONFIGURATIONS}/{name}")


def pod(inputs: str = "train", name: str = "", **spec: Any) -> Json:
    """Return a trainer's pod that complies with the restricted pod security standard."""
    meta: Json = {"name": name} if name else {"generateName": "trainer-"}
    return {"apiVersion": "v1", "kind": "Pod", **template(inputs, meta, **spec)}


def template(inputs: str = "train", meta: Json | None = None, **spec: Any) -> Json:
    """Return a pod template of a trainer."""
    trainer = {
        "name": "trainer",
        "image": "trainer:1",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "metadata": {
            **(meta or {}),
            "labels": {names.INJECT_LABEL: "true", "app": "trainer"},
            "annotations": {names.INPUTS_ANNOTATION: inputs},
        },
        "spec": {"containers": [trainer], "restartPolicy": "Never", **spec},
    }


def job(name: str, completions: int, inputs: str = "train", **meta: Any) -> Json:
    """Return an Indexed Job of trainers."""
    pods = template(inputs)
    pods["metadata"]["labels"].update(meta.pop("pod_labels", {}))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **meta},
        "spec": {
            "completionMode": "Indexed",
            "completions": completions,
            "parallelism": completions,
            "template": pods,
        },
    }


def find_sidecar(created: Json) -> Json:
    """Return the sidecar of a pod. Fail if there is none or more than one."""
    found = created["spec"].get("initContainers", [])
    (one,) = [c for c in found if c["name"] == names.SIDECAR_CONTAINER]
    return dict(one)


def consumer_identity(created: Json, container: Json) -> tuple[int, int]:
    """Return consumer index and count, as the kubelet would set them in the environment."""
    values = {}
    for one in container["env"]:
        path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        if path:
            section, key = path.removeprefix("metadata.").removesuffix("']").split("['")
            values[one["name"]] = created["metadata"][section][key]
        else:
            values[one["name"]] = one.get("value", "")
    return int(values[environment.CONSUMER_INDEX_ENV]), int(values[environment.CONSUMER_COUNT_ENV])


def milliseconds_since(start: float) -> float:
    """Return the milliseconds since `start`."""
    return (time.perf_counter() - start) * 1000
