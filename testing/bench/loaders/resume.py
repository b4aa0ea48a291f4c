"""Measure the first batch after a resume at row 1,000,000 of a dataset that is read by index.

Run `python -m testing.bench.loaders.resume`. The dataset has two million numbers. All processes but
this one are new before each measurement; they have started before its clock does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import numpy as np

import distributed_input
from testing.bench.case import REPO
from testing.bench.systems import default_spec
from testing.integration import readers
from testing.integration.cluster import Cluster

_ROW, _BATCH, _ROUNDS = 1_000_000, 10_000, 5


def main() -> None:
    """Print the seconds from the restore to the first batch."""
    with _input() as data:
        batches = data.numpy()
        found = [next(batches) for _ in range(_ROW // _BATCH)]
        position = data.position()
        expected = next(batches)
    assert len(np.unique(np.concatenate(found))) == _ROW
    for _ in range(_ROUNDS):
        with _input() as data:
            began = time.perf_counter()
            data.restore(position)
            first = next(data.numpy())
            print(f"first batch after {time.perf_counter() - began:.2f} s", flush=True)
        assert (first == expected).all()


@contextlib.contextmanager
def _input() -> Iterator[distributed_input.Input]:
    target = "testing.bench.loaders.shards:dataset_fn"
    with Cluster() as cluster:
        cluster.add_workers(1, "--path", str(REPO))
        one = default_spec(target, {"kind": "numbers"}, globalBatchSize=_BATCH)
        (sidecar,) = cluster.add_sidecars({"train": one})
        with readers.connect(sidecar) as data:
            yield data


if __name__ == "__main__":
    main()
