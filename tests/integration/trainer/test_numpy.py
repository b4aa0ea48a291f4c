"""Numpy batches, in a trainer without TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testing.integration import readers
from testing.integration.cluster import Cluster, spec
from testing.processes.forks import Fork

TRAINER = Path(__file__).parents[3] / "testing" / "integration" / "numpy_trainer.py"


def test_a_trainer_reads_without_tensorflow(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars(
        {"numpy": spec("rows:shuffled", {"rows": 50}, partitions=2, numSplits=3)}
    )
    env = {**os.environ, "DISTRIBUTED_INPUT_DIR": str(sidecar.shared)}
    done = subprocess.run(
        [sys.executable, str(TRAINER)], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)) == list(range(50))


def test_batches_are_read_only_views(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"views": spec("rows:numbered", globalBatchSize=10)})
    with readers.connect(sidecar) as data:
        batch = next(data.numpy())
        assert not batch["id"].flags.writeable
        assert not batch["id"].flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            batch["id"][0] = 1
    assert np.all(batch["square"] == batch["id"] ** 2)  # still readable after close


def test_a_new_iterator_reads_the_next_epoch(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars(
        {"epochs": spec("rows:shuffled", {"rows": 50}, partitions=2, numSplits=3)}
    )
    (whole,) = readers.read([sidecar], epochs=3)
    (some,) = readers.read([sidecar], epochs=2, steps=1)
    with readers.connect(sidecar) as data:
        for number in range(3):
            iterator = data.numpy()
            first = readers.copy_batch(next(iterator))
            assert readers.ids([first]) == readers.ids(whole[number][:1])
    assert [readers.ids(one) for one in some] == [readers.ids(one[:1]) for one in whole[:2]]


def test_an_older_iterator_ends_with_an_error(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"iterators": spec("rows:numbered", globalBatchSize=10)})
    with readers.connect(sidecar) as data:
        older = data.numpy()
        next(older)
        newer = data.numpy()
        next(newer)
        with pytest.raises(Exception, match="another iterator of this input has begun"):
            next(older)
        assert len(list(newer)) == 9


def test_a_fork_takes_no_batches_from_its_parent(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"forked": spec("rows:numbered", globalBatchSize=10)})
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        found = readers.ids([next(batches)])
        for new in (False, True):

            def read(new: bool = new) -> str:
                return f"read {readers.ids([next(data.numpy() if new else batches)])}"

            error = Fork(read).result()
            assert error.startswith("ConfigError: input forked was connected in process"), error
            found += readers.ids([next(batches)])
        found += readers.ids(batches)
    assert sorted(found) == list(range(100))
