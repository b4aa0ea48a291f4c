"""How long injection takes: python -m testing.operator.measure_injection

A real API server, a real operator, pods of an Indexed Job's (so that each takes two lookups, the
input and the Job), created as dry runs: one at a time, then eight at a time. What is told is the
API server's own histogram of the webhook's calls, TLS and JSON included, and the operator's own.
"""

from __future__ import annotations

import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kubernetes import client as kubernetes

from distributed_input_operator.injection.workloads import COMPLETION_INDEX
from testing.cluster.control_plane import ControlPlane
from testing.operator.cluster import Cluster
from testing.operator.processes import manifest
from testing.operator.webhooks import WEBHOOK, Json, Webhook, job, pod, since, webhook
from tests.operator.conftest import install

PODS = 500
_METRIC = "apiserver_admission_webhook_admission_duration_seconds_bucket"


def trainer() -> Json:
    """A pod as the Job's controller makes it."""
    made = pod()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "fit", "uid": "u"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    made["metadata"]["annotations"][COMPLETION_INDEX] = "1"
    return made


def calls(text: str, metric: str, labels: str) -> dict[float, float]:
    """Calls so far within each bound, from a page of metrics."""
    found: dict[float, float] = {}
    for given, value in re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.MULTILINE):
        bound = re.search(r'le="([^"]+)"', given)
        if bound and labels in given:
            found[float(bound[1])] = found.get(float(bound[1]), 0) + float(value)
    return found


def within(before: dict[float, float], after: dict[float, float]) -> str:
    """Shares of the calls between two looks that took no longer than each bound."""
    made = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    total = made[float("inf")]
    shares = [f"<= {bound * 1000:g} ms: {count / total:.2%}" for bound, count in made.items()]
    return f"{total:.0f} calls; " + ", ".join(shares)


def create(made: Webhook, which: Json) -> float:
    """Milliseconds that a creation took."""
    start = time.perf_counter()
    made.create(which, dryRun="All")
    return since(start)


def measure(api: kubernetes.ApiClient, made: Webhook, clients: int) -> None:
    """Create the pods, so many at once, and tell what they took."""
    plain = trainer()
    plain["metadata"]["labels"] = {}
    with ThreadPoolExecutor(clients) as pool:
        without = sorted(pool.map(lambda _: create(made, plain), range(PODS)))
        first = calls(metrics(api), _METRIC, WEBHOOK)
        took = sorted(pool.map(lambda _: create(made, trainer()), range(PODS)))
    last = calls(metrics(api), _METRIC, WEBHOOK)
    print(f"{clients} at a time, API server's view: {within(first, last)}")
    for name, values in (("with", took), ("without", without)):
        p50, p99 = values[PODS // 2], values[PODS * 99 // 100]
        print(f"  creation {name} injection: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def metrics(api: kubernetes.ApiClient) -> str:
    """The API server's page."""
    answer = api.call_api(*api.param_serialize("GET", "/metrics"))
    page: bytes = answer.read()
    return page.decode()


def main() -> None:
    """Measure; prints."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder) / "plane") as plane:
        with plane.client() as api:
            cluster = Cluster(api, "default")
            install(cluster)
            cluster.create(manifest("train", workers={"replicas": 0}))
            with webhook(cluster, plane.kubeconfig, Path(folder)) as made:
                made.create(job("fit", 2))
                for clients in (1, 8):
                    measure(api, made, clients)
                page = made.operator.get("/metrics")[1]
                own = calls(page, "distributed_input_operator_injection_seconds_bucket", "le")
                print(f"operator's view of all: {within({}, own)}")


if __name__ == "__main__":
    main()
