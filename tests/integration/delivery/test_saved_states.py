"""A split continues from a saved state, or without its first rows.

When its worker is killed, or when a job is restored.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from testing.integration import readers
from testing.integration.cluster import Cluster, Part, spec

ROWS, BATCH = 3000, 10
SPLITS = {"partitions": 1, "numSplits": 1, "globalBatchSize": BATCH, "epochs": 1}
TIMED = {"rows": ROWS, "milliseconds": 1}
RESTORED, SKIPPED = "resuming a split from a saved state", "resuming a split without its first rows"


def resumed_rows(worker: Part, message: str) -> list[int]:
    """Return the rows at which a worker continued splits in this way."""
    lines = (json.loads(line) for line in worker.log.read_text().splitlines() if line[:1] == "{")
    return [line["row"] for line in lines if line["message"] == message]


@pytest.mark.parametrize(("dataset", "how"), [("computed", RESTORED), ("timed_python", SKIPPED)])
def test_a_split_continues_on_another_worker(own_cluster: Cluster, dataset: str, how: str) -> None:
    (worker,) = own_cluster.add_workers(1)
    (sidecar,) = own_cluster.add_sidecars({"train": spec(f"wide:{dataset}", TIMED, **SPLITS)})
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        found = readers.ids(itertools.islice(batches, 200))
        worker.kill()
        (other,) = own_cluster.add_workers(1)
        found += readers.ids(batches)
    assert sorted(found) == list(range(ROWS))
    assert found != sorted(found)
    (row,) = resumed_rows(other, how)
    # how often states are saved depends on what they cost here
    assert (400 if how == SKIPPED else 0) < row <= ROWS


@pytest.mark.parametrize(("dataset", "how"), [("computed", RESTORED), ("timed_python", SKIPPED)])
def test_a_restored_job_continues(
    own_cluster: Cluster, tmp_path: Path, dataset: str, how: str
) -> None:
    folder = f"--state-dir={tmp_path / 'states'}"
    one = {"train": spec(f"wide:{dataset}", TIMED, **SPLITS)}
    (worker,) = own_cluster.add_workers(1, folder)
    (sidecar,) = own_cluster.add_sidecars(one)
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        found = readers.ids(itertools.islice(batches, 150))
        position = data.position()
        readers.ids(itertools.islice(batches, 50))  # lost
        worker.kill()
        sidecar.kill()
    (other,) = own_cluster.add_workers(1, folder)
    (sidecar,) = own_cluster.add_sidecars(one)
    with readers.connect(sidecar) as data:
        data.restore(position)
        found += readers.ids(data.numpy())
    assert sorted(found) == list(range(ROWS))
    (row,) = resumed_rows(other, how)
    assert (1300 if how == SKIPPED else 0) < row <= 1500
