"""Measures the latency of injection: python -m testing.operator.measure_injection

It runs a real API server and operator. It creates pods of an Indexed Job as dry runs: one at a
time, then eight at a time. Each needs two lookups, the input and the Job. It prints the API
server's histogram of webhook calls, which includes TLS and JSON, and the operator's histogram.
"""

from __future__ import annotations

import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kubernetes import client as kubernetes

from distributed_input_operator.injection.owners import COMPLETION_INDEX
from testing.cluster.control_plane import ControlPlane
from testing.operator.cluster import Cluster
from testing.operator.processes import manifest
from testing.operator.webhooks import (
    WEBHOOK,
    Json,
    Webhook,
    job,
    milliseconds_since,
    pod,
    run_webhook,
)
from tests.operator.conftest import install

PODS = 500
_METRIC = "apiserver_admission_webhook_admission_duration_seconds_bucket"


def trainer_pod() -> Json:
    """Return a pod like those that the Job controller creates."""
    pod_manifest = pod()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "fit", "uid": "u"}
    pod_manifest["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    pod_manifest["metadata"]["annotations"][COMPLETION_INDEX] = "1"
    return pod_manifest


def bucket_counts(text: str, metric: str, labels: str) -> dict[float, float]:
    """Return the cumulative number of calls per bucket bound from a metrics page."""
    found: dict[float, float] = {}
    for bucket_labels, value in re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.MULTILINE):
        bound = re.search(r'le="([^"]+)"', bucket_labels)
        if bound and labels in bucket_labels:
            found[float(bound[1])] = found.get(float(bound[1]), 0) + float(value)
    return found


def format_shares(before: dict[float, float], after: dict[float, float]) -> str:
    """Format the share of calls between two samples within each bound."""
    counts = {bound: count - before.get(bound, 0) for bound, count in after.items()}
    total = counts[float("inf")]
    shares = [f"<= {bound * 1000:g} ms: {count / total:.2%}" for bound, count in counts.items()]
    return f"{total:.0f} calls; " + ", ".join(shares)


def create(hook: Webhook, pod_manifest: Json) -> float:
    """Create a pod as a dry run. Return the milliseconds."""
    start = time.perf_counter()
    hook.create(pod_manifest, dryRun="All")
    return milliseconds_since(start)


def measure(api: kubernetes.ApiClient, hook: Webhook, clients: int) -> None:
    """Create the pods with `clients` threads and print the latencies."""
    plain = trainer_pod()
    plain["metadata"]["labels"] = {}
    with ThreadPoolExecutor(clients) as pool:
        without_injection = sorted(pool.map(lambda _: create(hook, plain), range(PODS)))
        first = bucket_counts(metrics(api), _METRIC, WEBHOOK)
        with_injection = sorted(pool.map(lambda _: create(hook, trainer_pod()), range(PODS)))
    last = bucket_counts(metrics(api), _METRIC, WEBHOOK)
    print(f"{clients} at a time, API server's view: {format_shares(first, last)}")
    for name, values in (("with", with_injection), ("without", without_injection)):
        p50, p99 = values[PODS // 2], values[PODS * 99 // 100]
        print(f"  creation {name} injection: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def metrics(api: kubernetes.ApiClient) -> str:
    """Return the API server's metrics page."""
    response = api.call_api(*api.param_serialize("GET", "/metrics"))
    page: bytes = response.read()
    return page.decode()


def main() -> None:
    """Run the measurement and print the results."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder) / "plane") as plane:
        with plane.client() as api:
            cluster = Cluster(api, "default")
            install(cluster)
            cluster.create(manifest("train", workers={"replicas": 0}))
            with run_webhook(cluster, plane.kubeconfig, Path(folder)) as hook:
                hook.create(job("fit", 2))
                for clients in (1, 8):
                    measure(api, hook, clients)
                page = hook.server.get("/metrics")[1]
                own = bucket_counts(
                    page, "distributed_input_operator_injection_seconds_bucket", "le"
                )
                print(f"webhook's view of all: {format_shares({}, own)}")


if __name__ == "__main__":
    main()
