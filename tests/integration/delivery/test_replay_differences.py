"""A replay that makes other rows is shown to the trainer and in the status, or is an error."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from distributed_input.api.errors import ReplayError, ReplayWarning
from testing.integration import readers
from testing.integration.cluster import Cluster, spec

BATCH = 4


@pytest.mark.parametrize("determinism", ["Warn", "Strict"])
def test_a_split_that_is_shorter_when_it_runs_again(
    own_cluster: Cluster, tmp_path: Path, determinism: str
) -> None:
    (worker,) = own_cluster.add_workers(1)
    shrunk = tmp_path / "shrunk"
    args = {"rows": 400, "milliseconds": 20, "shrunk": str(shrunk)}
    fields = {"partitions": 1, "numSplits": 1, "globalBatchSize": BATCH, "epochs": 1}
    one = spec("wide:shrinking", args, determinism=determinism, **fields)
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        found = readers.ids(itertools.islice(batches, 3))
        worker.kill()
        shrunk.touch()
        own_cluster.add_workers(1)
        if determinism == "Strict":
            with pytest.raises(ReplayError, match="it ended after 1 rows, but"):
                found += readers.ids(batches)
        else:
            with pytest.warns(ReplayWarning, match="it ended after 1 rows, but") as caught:
                found += readers.ids(batches)
            assert len(caught) == 1
        assert found == list(range(len(found)))
        assert len(found) >= 3 * BATCH
        deadline = time.monotonic() + readers.SECONDS
        while own_cluster.status().consumers[0].last.replay_mismatches != 1:
            assert time.monotonic() < deadline, "the status does not report the difference"
            time.sleep(0.1)
