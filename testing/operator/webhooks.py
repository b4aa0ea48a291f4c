"""The injection webhook before a real API server: an operator, its configuration, trainer pods."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed_input.api import names
from distributed_input_operator.kube.kinds import SECRET
from distributed_input_operator.webhook.admission import OWNERS
from testing.operator.cluster import Cluster, Refused
from testing.operator.processes import Operator, eventually, running

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
WEBHOOK = "inject.distributed-input.dev"
Json = dict[str, Any]


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def configuration(name: str, namespace: str, port: int) -> Json:
    """The chart's webhook configuration, but for its place: a URL, as there is no Service here."""
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


class Webhook:
    """An operator that serves the webhook of one namespace."""

    def __init__(self, cluster: Cluster, operator: Operator, name: str) -> None:
        self.cluster = cluster
        self.operator = operator
        self.name = name

    @property
    def path(self) -> str:
        """Of its configuration."""
        return f"{CONFIGURATIONS}/{self.name}"

    def bundle(self) -> bytes:
        """The authorities that the API server trusts."""
        webhook = self.cluster.call("GET", self.path)["webhooks"][0]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))

    def secret(self) -> Json:
        """Where the certificate is kept."""
        path = SECRET.path(self.cluster.namespace, names.WEBHOOK_SECRET)
        return self.cluster.call("GET", path)

    def wait_until_asked(self) -> None:
        """Return once a pod's creation reaches the webhook: API servers learn of it by a watch."""

        def asked() -> bool:
            try:
                self.create(pod("no-such-input"), dryRun="All")
            except Refused as error:
                return "no-such-input" in str(error)
            return False

        eventually(asked)

    def create(self, manifest: Json, **query: str) -> Json:
        """Create a pod, or what runs pods. Raises Refused."""
        return self.cluster.call("POST", self.place(manifest["kind"]), manifest, **query)

    def place(self, kind: str, name: str = "") -> str:
        """The path of an object of the namespace."""
        if kind in OWNERS:
            return OWNERS[kind].path(self.cluster.namespace, name)
        return self.cluster.path(kind, name)

    def pods_of(self, label: str, count: int) -> list[Json]:
        """So many pods with a label, as soon as they are there."""

        def there() -> list[Json]:
            found = self.cluster.list("Pod", label)
            return found if len(found) == count else []

        return eventually(there)


@contextmanager
def webhook(cluster: Cluster, kubeconfig: Path, folder: Path) -> Iterator[Webhook]:
    """An operator with the webhook, serving the cluster's namespace."""
    port, name = free_port(), f"di-{cluster.namespace}"
    cluster.call("POST", CONFIGURATIONS, configuration(name, cluster.namespace, port))
    flags = ["--namespace", cluster.namespace, "--webhook-listen", f"127.0.0.1:{port}"]
    flags += ["--webhook-host", "localhost", "--webhook-configuration", name]
    try:
        with running(kubeconfig, cluster.namespace, folder, *flags) as operator:
            made = Webhook(cluster, operator, name)
            eventually(lambda: operator.get("/readyz")[0] == 200)
            made.wait_until_asked()
            yield made
    finally:
        cluster.call("DELETE", f"{CONFIGURATIONS}/{name}")


def pod(inputs: str = "train", name: str = "", **spec: Any) -> Json:
    """A trainer's pod as restricted as namespaces ask for."""
    meta: Json = {"name": name} if name else {"generateName": "trainer-"}
    return {"apiVersion": "v1", "kind": "Pod", **template(inputs, meta, **spec)}


def template(inputs: str = "train", meta: Json | None = None, **spec: Any) -> Json:
    """The template of such pods."""
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
    """An Indexed Job of trainers."""
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


def sidecar_of(made: Json) -> Json:
    """The sidecar of a pod; fails where there is none, or several."""
    found = made["spec"].get("initContainers", [])
    (one,) = [c for c in found if c["name"] == names.SIDECAR_CONTAINER]
    return dict(one)


def resolved(made: Json, container: Json) -> tuple[int, int]:
    """Index and count as the kubelet would write them into a container's environment."""
    values = {}
    for one in container["env"]:
        path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        if path:
            where, key = path.removeprefix("metadata.").removesuffix("']").split("['")
            values[one["name"]] = made["metadata"][where][key]
        else:
            values[one["name"]] = one.get("value", "")
    return int(values[names.CONSUMER_INDEX_ENV]), int(values[names.CONSUMER_COUNT_ENV])


def since(start: float) -> float:
    """Milliseconds."""
    return (time.perf_counter() - start) * 1000
