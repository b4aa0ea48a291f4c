"""A job reads the splits that an earlier one has computed, in processes that have both ended."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from distributed_input.trainer.input import Input
from distributed_input.worker.store.file_versions import MIN_AGE_SECONDS
from testing.integration import readers
from testing.integration.cluster import Cluster, Part, spec
from testing.integration.datasets import rows

SIZES, SPLITS, BATCH = [40] * 8, 4, 8
FIELDS: dict[str, Any] = {"partitions": 2, "globalBatchSize": BATCH, "epochs": 1}
WARNING = "computing rows"


class Read(NamedTuple):
    """What a job has read: its batches, what the worker's store counted, and its warnings."""

    ids: list[int]
    stored: dict[str, float]
    warnings: list[str]


def counts_of(worker: Part) -> dict[str, float]:
    address = worker.wait_ready()["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.rsplit(" ", 1) for line in lines if "_worker_store_total{" in line)
    return {name.split('"')[1]: float(value) for name, value in found}


def read(store: Path, dataset: Any, position: bytes = b"", save_at: int = 0) -> tuple[Read, bytes]:
    """Read an epoch in new processes, from a position on. Return a position after some steps."""
    with Cluster() as cluster:
        flags = [f"--store-dir={store}", "--metrics-listen", "127.0.0.1:0"]
        (worker,) = cluster.add_workers(1, *flags)
        (sidecar,) = cluster.add_sidecars({"train": dataset})
        with readers.connect(sidecar) as data:
            if position:
                data.restore(position)
            found, saved = _read(data, save_at)
        counts = counts_of(worker)
        assert worker.stop() == 0  # it writes what is left
        lines = (json.loads(line) for line in worker.log.read_text().splitlines() if line[0] == "{")
        warnings = [line["message"] for line in lines if line["level"].lower() == "warning"]
    return Read(found, counts, [one for one in warnings if WARNING in one]), saved


def _read(data: Input, save_at: int) -> tuple[list[int], bytes]:
    batches = data.numpy()
    found = readers.ids(itertools.islice(batches, save_at))
    saved = data.position()
    return found + readers.ids(batches), saved


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with files that are old enough to be known by their times."""
    rows.write_files(tmp_path, SIZES)
    time.sleep(MIN_AGE_SECONDS)
    return tmp_path


def listed(folder: Path) -> Any:
    arguments = {"pattern": f"{folder}/part-*.tfrecord"}
    return spec("rows:listed", arguments, numSplits=SPLITS, **FIELDS)


def test_a_second_job_computes_nothing(folder: Path) -> None:
    first, _ = read(folder / "store", listed(folder))
    assert sorted(first.ids) == list(range(sum(SIZES)))
    assert first.stored["rows"] == 0
    files = sorted((folder / "store").glob("*.rows"))
    assert len(files) == SPLITS
    second, _ = read(folder / "store", listed(folder))
    assert second.ids == first.ids
    assert second.stored == {
        "rows": sum(SIZES),
        "bytes": second.stored["bytes"],
        "stored": 0,
        "damaged": 0,
    }
    assert second.stored["bytes"] >= 8 * sum(SIZES)


def test_a_job_of_another_seed_reads_what_is_before_a_boundary(folder: Path) -> None:
    def bounded(seed: int) -> Any:
        arguments = {"pattern": f"{folder}/part-*.tfrecord"}
        return spec("rows:bounded", arguments, numSplits=SPLITS, seed=seed, **FIELDS)

    first, _ = read(folder / "store", bounded(1))
    assert len(list((folder / "store").glob("*.rows/rows.index"))) == SPLITS
    second, _ = read(folder / "store", bounded(2))
    computed, _ = read(folder / "other", bounded(2))
    assert second.ids == computed.ids != first.ids
    assert sorted(second.ids) == list(range(sum(SIZES)))
    assert second.stored["rows"] == 0
    assert second.stored["bytes"] > 0
    assert computed.stored["bytes"] == 0


def test_a_file_that_has_changed_is_read_again(folder: Path) -> None:
    first, _ = read(folder / "store", listed(folder))
    rows.write_files(folder, [*SIZES[:-1], SIZES[-1] + 3])
    second, _ = read(folder / "store", listed(folder))
    assert sorted(second.ids) == list(range(sum(SIZES) + 3))
    assert sorted(first.ids) == list(range(sum(SIZES)))
    assert second.stored["rows"] == 0


def test_damaged_blocks_are_computed(folder: Path) -> None:
    first, _ = read(folder / "store", listed(folder))
    for file in (folder / "store").glob("*.rows"):
        data = bytearray(file.read_bytes())
        data[20] ^= 1
        file.write_bytes(data)
    second, _ = read(folder / "store", listed(folder))
    assert second.ids == first.ids
    assert second.stored["damaged"] == SPLITS
    assert second.stored["rows"] == 0
    assert read(folder / "store", listed(folder))[0].stored["rows"] == sum(SIZES)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder of a file system with room for one page."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        (disk / "other").write_bytes(bytes(4096))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_costs_no_rows_and_one_warning(folder: Path, full_disk: Path) -> None:
    found, _ = read(full_disk, listed(folder))
    assert sorted(found.ids) == list(range(sum(SIZES)))
    assert len(found.warnings) == 1
    assert [file.name for file in full_disk.iterdir()] == ["other"]


def test_a_store_that_may_not_be_written_costs_no_rows_and_one_warning(folder: Path) -> None:
    found, _ = read(Path("/proc/store"), listed(folder))
    assert sorted(found.ids) == list(range(sum(SIZES)))
    assert len(found.warnings) == 1


def test_a_restored_job_reads_the_blocks_behind_its_position(tmp_path: Path) -> None:
    """Without the store, it would compute all rows of the split again."""
    fields = {**FIELDS, "partitions": 1, "numSplits": 1, "globalBatchSize": 10}
    dataset = spec("wide:computed", {"rows": 3000, "milliseconds": 1}, **fields)
    whole, position = read(tmp_path / "store", dataset, save_at=150)
    rest, _ = read(tmp_path / "store", dataset, position)
    assert rest.ids == whole.ids[1500:]
    assert rest.stored["rows"] == 1500
