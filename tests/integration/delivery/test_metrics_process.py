"""Workers and sidecars serve metrics and probes."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator

import pytest

from distributed_input.runtime import metrics
from testing.integration import readers
from testing.integration.cluster import Cluster, Part, Sidecar, spec

METRICS_FLAGS = ["--metrics-listen", "127.0.0.1:0"]
ROWS, BATCH = 96, 16


@pytest.fixture(scope="module")
def worker(own_cluster: Cluster) -> Part:
    return own_cluster.add_workers(1, *METRICS_FLAGS)[0]


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def sidecar(own_cluster: Cluster, worker: Part) -> Sidecar:
    """Start a sidecar and read one epoch."""
    cluster = own_cluster
    config, shared = cluster.folder / "metrics.json", cluster.folder / "metrics"
    inputs = {"counted": spec("rows:numbered", {"rows": ROWS}, globalBatchSize=BATCH)}
    config.write_text(json.dumps({"inputs": inputs}))
    flags = ["--config", str(config), "--dir", str(shared), "--dispatcher", cluster.address]
    part = cluster._add("sidecar", [*flags, *METRICS_FLAGS])
    assert isinstance(part, Sidecar)
    part.shared = shared
    part.wait_ready()
    assert len(readers.epoch(readers.read([part]))[0]) == ROWS // BATCH
    deadline = time.monotonic() + 10
    while (
        not scrape(part)['distributed_input_sidecar_rows_total{input="counted",rank="0"}'] >= ROWS
    ):
        assert time.monotonic() < deadline, "the sidecar has not counted the last rows"
        time.sleep(0.05)
    return part


def scrape(part: Part) -> dict[str, float]:
    """Return the values by name and labels, from the Prometheus text."""
    address = part.wait_ready()["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in values}


def assert_serves_metrics_of(
    part: str, found: dict[str, float], except_for: set[metrics.Definition]
) -> None:
    """Require every metric of a part, except those whose labels do not exist yet."""
    served = {name.partition("{")[0] for name in found}
    for definition in metrics.definitions():
        if definition.name.startswith(f"{metrics.PREFIX}{part}_") and definition not in except_for:
            assert definition.name in served


def test_a_worker_counts_the_rows_that_it_computed(worker: Part, sidecar: Sidecar) -> None:
    found = scrape(worker)
    assert_serves_metrics_of("worker", found, except_for={metrics.WORKER_FAILURES})
    # The next epoch is read ahead.
    assert found["distributed_input_worker_rows_total"] >= ROWS
    assert found["distributed_input_worker_bytes_total"] >= ROWS * 12
    assert found["distributed_input_worker_busy_seconds_total"] > 0
    assert found["distributed_input_worker_stall_seconds_total"] > 0
    assert found["distributed_input_worker_draining"] == 0
    assert found["distributed_input_process_resident_memory_bytes"] > 1 << 20


def test_a_sidecar_counts_the_rows_of_the_trainer(sidecar: Sidecar) -> None:
    found = scrape(sidecar)
    assert_serves_metrics_of(
        "sidecar", found, except_for={metrics.SIDECAR_RECONNECTS, metrics.SIDECAR_SOURCE_ROWS}
    )
    assert found['distributed_input_sidecar_rows_total{input="counted",rank="0"}'] == ROWS
    assert (
        found['distributed_input_sidecar_batches_total{input="counted",rank="0"}'] == ROWS // BATCH
    )
    assert found['distributed_input_sidecar_bytes_total{input="counted",rank="0"}'] == ROWS * 12
    assert found['distributed_input_sidecar_epoch{input="counted",rank="0"}'] == 0
    assert found['distributed_input_sidecar_ring_bytes{input="counted",rank="0"}'] == 16 << 20
    assert found['distributed_input_sidecar_heartbeat_age_seconds{input="counted",rank="0"}'] < 10
    assert found["distributed_input_process_resident_memory_bytes"] > 1 << 20


def test_worker_and_sidecar_answer_probes(worker: Part, sidecar: Sidecar) -> None:
    for part in (worker, sidecar):
        address = part.wait_ready()["metrics"]
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as answer:
            assert answer.status == 200
