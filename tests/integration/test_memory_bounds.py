"""Nothing grows without end: not the rows made ahead, not the sidecar."""

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
"""Workers report once a second."""


def rows_made(cluster: Cluster) -> int:
    """By all workers, since their start, as they last reported."""
    return sum(worker.rows for worker in cluster.status().workers)


def when_still(cluster: Cluster, seconds: float = 60.0) -> int:
    """The rows made, once no more are for a while."""
    deadline = time.monotonic() + seconds
    rows, since = rows_made(cluster), time.monotonic()
    while time.monotonic() - since < STILL_SECONDS:
        assert time.monotonic() < deadline, "the workers go on making rows"
        time.sleep(0.2)
        now = rows_made(cluster)
        if now != rows:
            rows, since = now, time.monotonic()
    return rows


def test_a_trainer_that_stops_reading_stops_the_workers(cluster: Cluster) -> None:
    before = when_still(cluster)
    (sidecar,) = cluster.add_sidecars({"stopped": spec(**INPUT)})
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        count = len(next(batches)["id"])
        made = when_still(cluster) - before
        # The ring; and of each stream what the sidecar and gRPC keep, and what the worker holds.
        assert made * WIDTH <= RING + STREAMS * 8 * MIB
        count += sum(len(batch["id"]) for batch in batches)
    assert count == ROWS
    assert when_still(cluster) - before == ROWS


def test_a_sidecar_stays_small_beside_its_ring(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"small": spec(**INPUT)})
    with readers.connect(sidecar) as data:
        assert sum(len(batch["id"]) for batch in data.numpy()) == ROWS
        peak = sidecar.resident_bytes("VmHWM")
    assert peak - RING <= 150 * MIB
