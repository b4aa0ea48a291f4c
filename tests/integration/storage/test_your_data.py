"""The entry points of examples/data: five formats, in a folder, in S3 and in Cloud Storage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.resource.load import load
from testing.integration import readers
from testing.integration.cluster import spec
from testing.integration.readers import epoch, rows_of
from testing.storage.faulty_proxy import Fault, Request
from testing.storage.workers import FOLDER
from tests.integration.storage.conftest import FORMATS, Storages

ROWS = 1797
SHARDS = 12


@pytest.fixture(scope="session")
def found() -> dict[str, Any]:
    """Return the rows that tests read, by the format and the place."""
    return {}


def read(storages: Storages, name: str, where: str, trainers: int = 1, bucket: str = "") -> Any:
    """Return the batches of one epoch, as [trainer][step]."""
    args = {"url": f"{f's3://{bucket}' if bucket else storages.folders[where]}/{name}"}
    # Workers keep the rows that an earlier job with the same seed read.
    fields = {"seed": len(storages.cluster.parts), "globalBatchSize": 64, "numSplits": SHARDS}
    one = spec(f"{name}:dataset_fn", args, timeoutSeconds=60, **fields)
    job = f"{name}-{where}-{fields['seed']}"
    return epoch(readers.read(storages.cluster.add_sidecars({job: one}, trainers)))


def reads_of_files(requests: list[Request]) -> Counter[str]:
    """Return how many requests read each object, by its name. S3 asks for its size with HEAD."""
    paths = [unquote(one.path).partition("?") for one in requests if one.method == "GET"]
    return Counter(path.rpartition("/")[2] for path, _, query in paths if _is_read(path, query))


def _is_read(path: str, query: str) -> bool:
    """Return whether a request reads an object's bytes, not a list or metadata."""
    if path.startswith("/storage/v1/"):
        return query == "alt=media"
    return path.count("/") > 1


@pytest.mark.parametrize("where", ["pvc", "s3", "gs"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_row_arrives_once(
    storages: Storages, found: dict[str, Any], name: str, where: str
) -> None:
    rows = rows_of(read(storages, name, where, trainers=2))
    assert sorted(rows) == list(range(ROWS))
    assert rows == found.setdefault("rows", rows)  # the same values in all formats and places


@pytest.mark.parametrize("where", ["s3", "gs"])
@pytest.mark.parametrize("name", ["tfrecords", "tars"])
def test_a_split_reads_only_its_files(storages: Storages, name: str, where: str) -> None:
    read(storages, name, where)
    reads = reads_of_files(storages.proxies[where].requests)
    assert len(reads) == SHARDS
    # A worker reads the start of the first file once more, to learn the shape of rows.
    assert sorted(reads.values())[:-1] == [1] * (SHARDS - 1)
    assert max(reads.values()) <= 2


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.CUT, Fault.SLOW])
@pytest.mark.parametrize("where", ["s3", "gs"])
def test_requests_that_fail_once(storages: Storages, where: str, fault: Fault) -> None:
    """The client of the storage repeats each request: no error reaches the trainer."""
    proxy = storages.proxies[where]
    proxy.clear(lambda request: Fault.NONE if request.again else fault)
    rows = rows_of(read(storages, "parquet", where))
    assert sorted(rows) == list(range(ROWS))
    assert proxy.faults[fault] >= SHARDS


def test_a_storage_that_fails_longer_than_its_client_tries(storages: Storages) -> None:
    """The sidecar repeats the split more than three times, and no row is lost or repeated."""
    failures = 10  # the client's 3 attempts, in the first 3 attempts of the sidecar, and one more
    proxy = storages.proxies["s3"]
    proxy.clear(
        lambda one: (
            Fault.UNAVAILABLE if "-05-of-" in one.path and one.again < failures else Fault.NONE
        )
    )
    rows = rows_of(read(storages, "tfrecords", "s3"))
    assert sorted(rows) == list(range(ROWS))
    assert proxy.faults[Fault.UNAVAILABLE] >= failures


def test_an_error_of_the_storage_names_what_is_missing(storages: Storages) -> None:
    with pytest.raises(DatasetFnError, match="no-such-bucket"):
        read(storages, "parquet", "s3", bucket="no-such-bucket")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_resources_are_valid(file: Path) -> None:
    entry = load(file).spec.dataset.entry_point
    assert entry
    module, _, function = entry.function.partition(":")
    assert f"def {function}(" in (FOLDER / f"{module}.py").read_text()
