"""Records that cannot be read are left out: exactly these, and the status has each of them."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import DatasetFnError
from testing.integration import readers
from testing.integration.cluster import Cluster, Part, spec
from testing.integration.datasets import corrupt

FILES, ROWS, BATCH = 8, 100, 8
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _spec(kind: str, folder: Path, **fields: Any) -> Any:
    args = {"folder": str(folder), "batch": BATCH, **fields.pop("args", {})}
    args = {key: value for key, value in args.items() if value is not None}
    bad = {"onError": "Skip", **fields.pop("badRecords", {})}
    whole = {"numSplits": 4, "partitions": 2, "globalBatchSize": BATCH, "epochs": 1, **fields}
    return spec(f"corrupt:{kind}", args, badRecords=bad, **whole)


@pytest.mark.parametrize("kind", ["tfrecord", "jsonl", "tar"])
def test_exactly_the_corrupt_records_are_missing(
    own_cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    expected = corrupt.write(tmp_path, kind, FILES, ROWS)
    worker, _ = own_cluster.add_workers(2)
    sidecars = own_cluster.add_sidecars({"train": _spec(kind, tmp_path)}, consumers=2)
    steps = readers.run_concurrently(
        [lambda one=one, at=at: _read(one, worker, at) for at, one in enumerate(sidecars)]
    )
    assert len(steps[0]) == len(steps[1])
    assert sorted(itertools.chain(*itertools.chain(*steps))) == expected
    skipped = _wait_for_skipped(own_cluster, FILES * ROWS - len(expected))
    assert {one.epoch for one in skipped} == {0}
    assert all(one.error for one in skipped)
    if kind != "tar":
        names = [f"{tmp_path}/{file:03}.{kind}" for file in range(FILES)]
        assert sorted(one.file for one in skipped) == names
        assert {one.index for one in skipped} == {33}


def _read(sidecar: Any, worker: Part, consumer: int) -> list[list[int]]:
    """Read an epoch. The first trainer kills a worker in the middle; another one continues."""
    with readers.connect(sidecar, timeout=60.0) as data:
        batches = data.numpy()
        steps = [one.tolist() for one in itertools.islice(batches, 20)]
        if consumer == 0:
            worker.kill()
        steps += [one.tolist() for one in batches]
    return steps


def _wait_for_skipped(cluster: Cluster, count: int) -> list[Any]:
    deadline = time.monotonic() + readers.SECONDS
    while (status := cluster.status()).skipped_records < count:
        assert time.monotonic() < deadline, status.skipped
        time.sleep(0.1)
    assert status.skipped_records == len(status.skipped) == count
    return list(status.skipped)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("missing", "NotFoundError"),
        ("vectorized", "it was not raised by a map of single records"),
        ("iterable", "a Python iterable does not continue after an error"),
    ],
)
def test_other_errors_reach_the_trainer(
    own_cluster: Cluster, tmp_path: Path, dataset: str, message: str
) -> None:
    corrupt.write(tmp_path, "jsonl", 2, 100)
    own_cluster.add_workers(1)
    args = {"batch": None} if dataset == "iterable" else {}
    one = _spec(dataset, tmp_path, args=args, numSplits=1, partitions=1)
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    with readers.connect(sidecar, timeout=60.0) as data:
        with pytest.raises(DatasetFnError, match=message):
            list(data.numpy())
    assert not own_cluster.status().skipped_records


def test_an_error_of_storage_is_no_skip(own_cluster: Cluster, tmp_path: Path) -> None:
    corrupt.write(tmp_path, "tar", 2, 100)
    broken = tmp_path / "broken"
    own_cluster.add_workers(1)
    one = _spec("tar", tmp_path, args={"broken": str(broken)}, numSplits=1, partitions=1)
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    broken.touch()
    with readers.connect(sidecar, timeout=60.0) as data:
        with pytest.raises(DatasetFnError, match="the storage does not answer"):
            list(data.numpy())


def test_too_many_records_are_an_error(own_cluster: Cluster, tmp_path: Path) -> None:
    corrupt.write(tmp_path, "jsonl", 4, 100)
    own_cluster.add_workers(1)
    one = _spec("jsonl", tmp_path, badRecords={"maxPerSplit": 3}, numSplits=1, partitions=1)
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    with readers.connect(sidecar, timeout=60.0) as data:
        with pytest.raises(DatasetFnError, match=r"spec\.badRecords\.maxPerSplit"):
            list(data.numpy())


def test_records_fail_by_default(own_cluster: Cluster, tmp_path: Path) -> None:
    corrupt.write(tmp_path, "jsonl", 1, 100)
    own_cluster.add_workers(1)
    one = _spec("jsonl", tmp_path, badRecords={"onError": "Fail"}, numSplits=1, partitions=1)
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    with readers.connect(sidecar, timeout=60.0) as data:
        with pytest.raises(DatasetFnError, match="JSONDecodeError"):
            list(data.numpy())
