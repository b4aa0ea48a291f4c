"""Records that cannot be read are left out: exactly these, and the status has each of them."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import DatasetFnError, PositionError
from testing.integration import readers
from testing.integration.cluster import Cluster, Part, spec, temporary_sidecars
from testing.integration.datasets import corrupt
from testing.storage import servers
from testing.storage.faulty_proxy import Fault, Request, faulty_proxy

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


@pytest.mark.parametrize("kind", ["tfrecord", "jsonl", "tar"])
def test_an_object_storage_that_fails_now_and_then_hides_no_record(
    own_cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    """The dataset does not repeat requests, so each failure is one of a split."""
    bucket = tmp_path / "data"
    bucket.mkdir()
    expected = corrupt.write(bucket, kind, FILES, ROWS)
    with servers.gcs(tmp_path) as storage, faulty_proxy(storage.address) as proxy:
        worker, _ = own_cluster.add_workers(2)
        url = f"http://{proxy.address}/storage/v1/b/data/o"
        more: dict[str, Any] = {"folder": None, "files": FILES}
        if kind == "tar":
            more = {}
        elif kind == "tfrecord":
            more["downloads"] = str(own_cluster.folder)
        one = _spec(f"{kind}_objects", bucket, args={"bucket": url, **more})
        # A split with a bad record is replayed from its start, and must come further each time.
        healthy = [Fault.NONE] * (400 if kind == "tar" else 1)
        faults = itertools.cycle([Fault.UNAVAILABLE, Fault.CUT, *healthy])
        objects: set[str] = set()

        def choose(request: Request) -> Fault:
            if kind == "tar":  # a request for each row
                return next(faults)
            first = request.path not in objects
            objects.add(request.path)
            return next(faults) if first else Fault.NONE

        sidecars = own_cluster.add_sidecars({"train": one}, consumers=2)
        proxy.clear(choose)
        steps = readers.run_concurrently(
            [lambda one=one, at=at: _read(one, worker, at) for at, one in enumerate(sidecars)]
        )
    assert min(proxy.faults[Fault.UNAVAILABLE], proxy.faults[Fault.CUT]) > 0
    assert len(steps[0]) == len(steps[1])
    assert sorted(itertools.chain(*itertools.chain(*steps))) == expected
    _wait_for_skipped(own_cluster, FILES * ROWS - len(expected))


def _key(kind: str, folder: Path, number: int) -> dict[str, Any]:
    if kind == "tar":
        return {"step": "__getitem__", "index": number}
    file = f"{folder}/{number // ROWS:03}.{kind}"
    step = "TFRecordDataset" if kind == "tfrecord" else "Dataset_map_lambda"
    return {"step": step, "index": number % ROWS, "file": file}


@pytest.mark.parametrize("kind", ["tfrecord", "jsonl", "tar"])
def test_excluded_records_are_missing(own_cluster: Cluster, tmp_path: Path, kind: str) -> None:
    healthy = corrupt.write(tmp_path, kind, FILES, ROWS)
    excluded = sorted({*range(FILES * ROWS)} - {*healthy} | {250, 251, 333})
    keys = [_key(kind, tmp_path, number) for number in excluded]
    worker, _ = own_cluster.add_workers(2)
    one = _spec(kind, tmp_path, badRecords={"onError": "Fail", "exclude": keys})
    sidecars = own_cluster.add_sidecars({"train": one}, consumers=2)
    steps = readers.run_concurrently(
        [lambda one=one, at=at: _read(one, worker, at) for at, one in enumerate(sidecars)]
    )
    assert len(steps[0]) == len(steps[1])
    found = sorted(itertools.chain(*itertools.chain(*steps)))
    assert found == sorted({*range(FILES * ROWS)} - {*excluded})
    skipped = _wait_for_skipped(own_cluster, len(excluded))
    assert {record.error for record in skipped} == {"excluded by spec.badRecords.exclude"}


def test_a_checkpoint_may_continue_without_records_that_are_excluded_later(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    corrupt.write(tmp_path, "jsonl", FILES, ROWS)
    own_cluster.add_workers(1)
    splits = {"numSplits": FILES, "partitions": 2}  # one file each

    def read(
        records: list[int],
        steps: int | None,
        position: bytes | None = None,
        accepts: bool = False,
    ) -> Any:
        keys = [_key("jsonl", tmp_path, number) for number in records]
        one = _spec("jsonl", tmp_path, badRecords={"exclude": keys}, **splits)
        with (
            temporary_sidecars(own_cluster, {"train": one}) as (sidecar,),
            readers.connect(sidecar, timeout=60.0, accept_changed_dataset=accepts) as data,
        ):
            if position is not None:
                data.restore(position)
            found = [one.tolist() for one in itertools.islice(data.numpy(), steps)]
            return list(itertools.chain(*found)), data.position()

    whole, _ = read([], None)
    first, position = read([], FILES * ROWS // BATCH // 2)
    ahead = [number for number in whole[len(first) + 300 :] if number % ROWS == 70]
    with pytest.raises(PositionError, match=r"spec\.badRecords\.exclude has changed"):
        read([first[0], *ahead], None, position)
    rest, _ = read([first[0], *ahead], None, position, accepts=True)
    assert ahead
    assert sorted(rest) == sorted({*whole[len(first) :]} - {*ahead})


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


@pytest.mark.parametrize("excluded", [[], [50]])
def test_records_fail_by_default(own_cluster: Cluster, tmp_path: Path, excluded: list[int]) -> None:
    corrupt.write(tmp_path, "jsonl", 1, 100)
    own_cluster.add_workers(1)
    bad = {"onError": "Fail", "exclude": [_key("jsonl", tmp_path, one) for one in excluded]}
    one = _spec("jsonl", tmp_path, badRecords=bad, numSplits=1, partitions=1)
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    with readers.connect(sidecar, timeout=60.0) as data:
        with pytest.raises(DatasetFnError, match="JSONDecodeError") as raised:
            list(data.numpy())
    assert "spec.badRecords" not in str(raised.value)
