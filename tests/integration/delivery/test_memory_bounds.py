"""Rows that are read ahead, and the memory of the sidecar, have a limit."""

from __future__ import annotations

import time
from typing import Any

from testing.integration import readers
from testing.integration.cluster import Cluster, spec

MIB = 1 << 20
WIDTH = 128 << 10
ROWS = 3000  # 375 MiB
RING = 16 * MIB
STREAMS = 8  # of 4 partitions, each with one split open ahead
INPUT: dict[str, Any] = {
    "entry_point": "wide:wide",
    "args": {"rows": ROWS, "width": WIDTH},
    "partitions": 4,
    "numSplits": 12,
    "globalBatchSize": 16,
    "buffer": "16Mi",
    "epochs": 1,
}
STILL_SECONDS = 4.0
"""Time without new rows. Workers report once per second."""


def rows_computed(cluster: Cluster) -> int:
    """Return the rows of all workers since their start, as they last reported."""
    return sum(worker.rows for worker in cluster.status().workers)


def rows_after_standstill(cluster: Cluster, seconds: float = 60.0) -> int:
    """Wait until no more rows are computed, and return their number."""
    deadline = time.monotonic() + seconds
    rows, since = rows_computed(cluster), time.monotonic()
    while time.monotonic() - since < STILL_SECONDS:
        assert time.monotonic() < deadline, "the workers still compute rows"
        time.sleep(0.2)
        now = rows_computed(cluster)
        if now != rows:
            rows, since = now, time.monotonic()
    return rows


def test_a_trainer_that_stops_reading_stops_the_workers(cluster: Cluster) -> None:
    before = rows_after_standstill(cluster)
    (sidecar,) = cluster.add_sidecars({"stopped": spec(**INPUT)})
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        count = len(next(batches)["id"])
        computed = rows_after_standstill(cluster) - before
        # Shared memory, and for each stream the queue of the sidecar (8 MiB), and blocks of up to
        # 4 MiB on the way and in the worker.
        assert computed * WIDTH <= RING + STREAMS * 16 * MIB
        count += sum(len(batch["id"]) for batch in batches)
    assert count == ROWS
    assert rows_after_standstill(cluster) - before == ROWS


def test_a_sidecar_needs_little_memory_beside_shared_memory(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"small": spec(**INPUT)})
    with readers.connect(sidecar) as data:
        assert sum(len(batch["id"]) for batch in data.numpy()) == ROWS
        peak = sidecar.resident_bytes("VmHWM")
    assert peak - RING <= 150 * MIB
