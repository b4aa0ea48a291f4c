"""Splits cache to files of their own, which are complete or absent, also after a kill."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.graph import export
from distributed_input.graph.definition import caches
from distributed_input.graph.definition.canonical import serialize
from distributed_input.worker.datasets import cache_files
from distributed_input.worker.datasets.cache_files import CacheWriter, SplitCaches
from distributed_input.worker.datasets.describe import describe
from distributed_input.worker.datasets.split_opener import SplitOpener
from tests.unit.distributed_input.graph.graphcases import module_of, with_policy

_CODE = """
import tensorflow as tf

COMPUTED = []

def rows(context, folder, file="cache"):
    def compute(x):
        COMPUTED.append(int(x))
        return x
    data = tf.data.Dataset.range(12).shard(context.num_input_pipelines, context.input_pipeline_id)
    data = data.map(lambda x: tf.numpy_function(compute, [x], tf.int64))
    return data.map(lambda x: tf.ensure_shape(x, [])).cache(f"{folder}/{file}")

def by_epoch(context, folder):
    epoch = context.epoch
    def add(x):
        return tf.numpy_function(lambda y: y + epoch, [x], tf.int64)
    data = tf.data.Dataset.range(3).map(add)
    return data.map(lambda x: tf.ensure_shape(x, [])).cache(f"{folder}/cache")
"""


@pytest.fixture
def computed(tmp_path: Path) -> Iterator[list[int]]:
    """Return the list of the rows that were computed."""
    with module_of(tmp_path, "cached_of_test", _CODE) as module:
        yield module.COMPUTED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "caches [1]"  # with characters of file patterns


def job_of(function: str, folder: Path) -> types_pb2.Job:
    entry = types_pb2.EntryPoint(
        target=f"cached_of_test:{function}", args_json=json.dumps({"folder": str(folder)})
    )
    return describe(types_pb2.Job(name="a", entry_point=entry, num_splits=3, partitions=1))


def read(job: types_pb2.Job, split: int, epoch: int = 0, opener: SplitOpener | None = None) -> list:
    opener = opener or SplitOpener(lambda _: b"")
    return [int(row) for row in opener.open(job, 0, epoch, split, 0).elements]


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_each_split_is_computed_once(computed: list[int], folder: Path) -> None:
    job, opener = job_of("rows", folder), SplitOpener(lambda _: b"")
    expected = [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]]
    assert [read(job, split, 0, opener) for split in range(3)] == expected
    assert len(computed) == 12
    assert [read(job, split, 1, opener) for split in range(3)] == expected
    assert [read(job, split) for split in range(3)] == expected, "another worker"
    assert len(computed) == 12
    assert len(names(folder)) == 6  # an index and a data file of each split
    assert not [name for name in names(folder) if "part" in name or "lock" in name]


def test_two_workers_may_compute_a_split_at_the_same_time(
    computed: list[int], folder: Path
) -> None:
    job = job_of("rows", folder)
    both = [SplitOpener(lambda _: b"").open(job, 0, 0, 1, 0).elements for _ in range(2)]
    rows = [[int(a), int(b)] for a, b in zip(*both, strict=True)]
    assert rows == [[1, 1], [4, 4], [7, 7], [10, 10]]
    del both
    gc.collect()
    assert len(names(folder)) == 2
    assert read(job, 1) == [1, 4, 7, 10]
    assert len(computed) == 8


def test_a_split_that_is_not_read_to_its_end_leaves_no_files(
    computed: list[int], folder: Path
) -> None:
    job = job_of("rows", folder)
    elements = SplitOpener(lambda _: b"").open(job, 0, 0, 1, 0).elements
    assert int(next(elements)) == 1
    assert names(folder)
    del elements
    gc.collect()
    assert names(folder) == []
    assert read(job, 1) == [1, 4, 7, 10]


@pytest.mark.usefixtures("computed")
def test_rows_that_depend_on_the_epoch_are_not_read_from_another_epoch(folder: Path) -> None:
    job = job_of("by_epoch", folder)
    assert [read(job, 0, epoch) for epoch in (0, 1, 0)] == [[0, 1, 2], [1, 2, 3], [0, 1, 2]]


def test_a_dataset_of_the_trainer_has_files_for_each_split(folder: Path) -> None:
    dataset = with_policy(tf.data.Dataset.range(6).cache(str(folder / "cache")), "DATA")
    draft = types_pb2.Job(name="a", num_splits=2, partitions=1)
    with pytest.warns(UserWarning, match="DATA sharding"):
        job, data = export.export_job(draft, dataset)
    opener = SplitOpener(lambda _: data, folder)
    for epoch in range(2):
        assert [read(job, split, epoch, opener) for split in range(2)] == [[0, 2, 4], [1, 3, 5]]
    assert len(names(folder)) == 4


def test_the_files_of_a_killed_worker_are_removed(folder: Path) -> None:
    folder.mkdir()
    code = f"""
        import os, signal
        from pathlib import Path
        from distributed_input.runtime.files.locked_folders import lock_new
        part = {str(folder / "cache")!r} + ".part-1234"
        Path(part + ".data-00000-of-00001").touch()
        Path(part + "_0.lockfile").touch()
        lock_new(Path(part + ".lock"))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(names(folder)) == 3
    alive = CacheWriter(str(folder / "cache"))
    Path(alive.part + ".data-00000-of-00001").touch()
    kept = names(folder)
    assert not [name for name in kept if "1234" in name]
    cache_files.remove_stale(str(folder / "cache"))
    assert names(folder) == kept, "the files of a live writer"
    alive.close(ended=False)
    assert names(folder) == []


def test_a_complete_cache_is_read(folder: Path) -> None:
    split = SplitCaches(1, 4)
    part = split.path(str(folder / "f"), "01ab")
    (writer,) = split.writers
    assert part == writer.part
    for suffix in (".index", ".data-00000-of-00001"):
        Path(part + suffix).touch()
    writer.close(ended=True)
    again = SplitCaches(1, 4)
    path = again.path(str(folder / "f"), "01ab")
    assert (Path(path).name.startswith("f-split-00001-of-00004-01ab"), again.writers) == (True, [])
    assert len(SplitCaches(1, 4, ["other"]).path(str(folder / "f"), "01ab")) > len(path)


def test_a_dataset_without_graph_must_not_cache_to_files(tmp_path: Path) -> None:
    rows = tf.data.Dataset.range(3)
    cache_files.check_without_graph(rows.cache().batch(2))
    with pytest.raises(ConfigError, match="its splits cannot get files of their own"):
        cache_files.check_without_graph(rows.cache(str(tmp_path / "f")).batch(2))
    caches.check(serialize(rows.cache(str(tmp_path / "f"))))
