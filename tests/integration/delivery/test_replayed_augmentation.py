"""Random values in parallel functions are the same when a split runs again."""

from __future__ import annotations

import itertools

from testing.integration import readers
from testing.integration.cluster import Cluster, spec

ROWS = 320
BATCH = 8


def test_rows_after_a_killed_worker_are_those_of_an_undisturbed_run(own_cluster: Cluster) -> None:
    fields = {"partitions": 2, "numSplits": 2, "globalBatchSize": BATCH, "epochs": 1}
    (first,) = own_cluster.add_workers(1, "--parallelism=2")
    inputs = {
        name: spec("random_maps:augmented", {"rows": ROWS}, determinism="Strict", **fields)
        for name in ("calm", "disturbed")
    }
    (sidecar,) = own_cluster.add_sidecars(inputs)
    expected = readers.rows_of(readers.epoch(readers.read([sidecar], "calm")))
    assert len(expected) == ROWS
    for column in ("branch", "walk", "drawn", "image"):
        assert len({values[column] for values in expected.values()}) == ROWS, column
    with readers.connect(sidecar, "disturbed") as data:
        batches = data.numpy()
        found = [readers.copy_batch(batch) for batch in itertools.islice(batches, 12)]
        first.kill()
        own_cluster.add_workers(1, "--parallelism=1")
        found += [readers.copy_batch(batch) for batch in batches]
    assert readers.rows_of([found]) == expected
    assert own_cluster.status().consumers[0].last.replay_mismatches == 0
