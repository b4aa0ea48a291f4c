"""The definition of a dataset changes with its files, and not with the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import DatasetFnError, JobConflictError, SpecError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets.describe import describe
from distributed_input.worker.datasets.split_opener import SplitOpener
from tests.unit.distributed_input.graph.graphcases import module_of

_CODE = """
import os
import random
import numpy as np
import tensorflow as tf

def sharded(context, folder):
    files = tf.data.Dataset.list_files(folder + "/*", shuffle=False)
    files = files.shard(context.num_input_pipelines, context.input_pipeline_id)
    return files.map(lambda path: tf.strings.length(path))

def sliced(context, folder):
    files = sorted(os.listdir(folder))[context.input_pipeline_id :: context.num_input_pipelines]
    return tf.data.Dataset.from_tensor_slices(tf.constant(files, tf.string, [len(files)]))

def folded(context, folder):
    data = tf.data.Dataset.range(40).shard(2, len(os.listdir(folder)) % 2)
    return data.shard(context.num_input_pipelines, context.input_pipeline_id)

def turned(context, folder):
    n = context.num_input_pipelines
    turn = len(os.listdir(folder)) % 2
    return tf.data.Dataset.range(16).shard(n, (context.input_pipeline_id + turn) % n)

def chunked(context, folder):
    files = sorted(os.listdir(folder))
    n, i = context.num_input_pipelines, context.input_pipeline_id
    files = files[i * len(files) // n : (i + 1) * len(files) // n]
    return tf.data.Dataset.from_tensor_slices(tf.constant(files, tf.string, [len(files)]))

def drawn(context, folder):
    files = sorted(os.listdir(folder))
    random.shuffle(files)
    files = files[context.input_pipeline_id :: context.num_input_pipelines]
    return tf.data.Dataset.from_tensor_slices(tf.constant(files, tf.string, [len(files)]))

def python(context, folder):
    def double(x):
        return np.int64(2 * x)
    data = tf.data.Dataset.range(9)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    data = data.map(lambda x: tf.numpy_function(double, [x], tf.int64))
    return data.map(lambda x: tf.ensure_shape(x, []))

def sharded_by_seed(context, folder):
    return sharded(context, folder).map(lambda x: (x, context.seed))

def shuffled(context, folder):
    return sharded(context, folder).shuffle(9)

def shuffled_in_one_split(context, folder):
    data = tf.data.Dataset.range(3 + context.input_pipeline_id)
    return data.shuffle(9) if context.input_pipeline_id == 1 else data

def generator(context, folder):
    signature = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter(range(3)), output_signature=signature)

def mixed(context, folder):
    return [1] if context.input_pipeline_id else tf.data.Dataset.range(3)

def broken(context, folder):
    if context.input_pipeline_id == 2:
        raise OSError("split 2 cannot be listed")
    return tf.data.Dataset.range(context.input_pipeline_id)
"""
SPLITS = 4
LISTING = ["sharded", "sliced", "chunked", "drawn"]
Describe = Callable[..., types_pb2.Job]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with ten files."""
    files = tmp_path / "files"
    files.mkdir()
    for number in range(10):
        (files / f"{number:02}").touch()
    return files


@pytest.fixture
def described(tmp_path: Path, folder: Path) -> Iterator[Describe]:
    def of(function: str, **fields: Any) -> types_pb2.Job:
        entry = types_pb2.EntryPoint(
            target=f"definitions_of_test:{function}", args_json=f'{{"folder": "{folder}"}}'
        )
        fields = {"name": "a", "num_splits": SPLITS, "partitions": 2, **fields}
        return describe(types_pb2.Job(entry_point=entry, **fields))

    with module_of(tmp_path, "definitions_of_test", _CODE):
        yield of


def open_all(job: types_pb2.Job, seed: int = 0) -> None:
    """Open all splits in two epochs, as a new worker does."""
    opener = SplitOpener(lambda _: b"")
    for epoch in (0, 1):
        for split in range(SPLITS):
            list(opener.open(job, seed, epoch, split, 0).elements)


@pytest.mark.parametrize("function", [*LISTING, "python", "generator"])
def test_an_unchanged_dataset_is_accepted(described: Describe, function: str) -> None:
    job = described(function)
    assert job == described(function)
    open_all(job)


def test_consumers_with_an_order_of_their_own_share_the_definition(described: Describe) -> None:
    for function in ("sharded", "drawn"):
        open_all(described(function, mode=types_pb2.PARALLEL_EPOCHS), seed=5)


def test_splits_that_differ_only_in_their_shard_have_one_fingerprint(described: Describe) -> None:
    counts = {name: len(described(name).definitions) for name in (*LISTING, "python", "generator")}
    assert counts == {
        "sharded": 1, "sliced": 4, "chunked": 4, "drawn": 4, "python": 1, "generator": 1
    }  # fmt: skip


@pytest.mark.parametrize("function", LISTING)
@pytest.mark.parametrize("name", ["00a", "05a", "99"], ids=["first", "middle", "last"])
def test_a_file_that_is_added_during_a_run_is_an_error(
    described: Describe, folder: Path, function: str, name: str
) -> None:
    """Each file would be read by no split, or by two."""
    job = described(function)
    (folder / name).touch()
    with pytest.raises(JobConflictError, match=r"split \d of .* has changed since the run started"):
        open_all(job)
    assert described(function).definitions != job.definitions


@pytest.mark.parametrize("function", ["folded", "turned"])
def test_other_arguments_of_a_shard_are_an_error(
    described: Describe, folder: Path, function: str
) -> None:
    jobs = []
    for name in ("99", "99a"):
        jobs.append(described(function))
        open_all(jobs[-1])
        (folder / name).touch()
        with pytest.raises(JobConflictError, match="has changed since the run started"):
            open_all(jobs[-1])
    assert jobs[0].definitions != jobs[1].definitions


def test_a_removed_file_is_an_error(described: Describe, folder: Path) -> None:
    job = described("sharded")
    (folder / "07").unlink()
    with pytest.raises(JobConflictError, match="list of files"):
        open_all(job)


def test_another_version_of_tensorflow_cannot_be_compared(
    described: Describe, folder: Path
) -> None:
    job = described("sharded")
    job.definition_version = "2.0.0"
    (folder / "99").touch()
    open_all(job)


def test_an_error_of_any_split_is_reported_before_the_run(described: Describe) -> None:
    with pytest.raises(DatasetFnError, match="split 2 cannot be listed"):
        described("broken")
    with pytest.raises(SpecError, match="returned list for split"):
        described("mixed")


@pytest.mark.parametrize("function", ["drawn", "sharded_by_seed"])
def test_a_split_that_is_built_for_each_epoch_is_checked_each_time(
    described: Describe, folder: Path, function: str
) -> None:
    job, opener = described(function), SplitOpener(lambda _: b"")
    list(opener.open(job, 0, 0, 1, 0).elements)
    (folder / "99").touch()
    with pytest.raises(JobConflictError):
        opener.open(job, 0, 1, 1, 0)


@pytest.mark.parametrize("function", ["shuffled", "shuffled_in_one_split"])
def test_a_job_of_an_earlier_order_of_rows_is_an_error(
    described: Describe, folder: Path, function: str
) -> None:
    job = described(function)
    open_all(job)
    job.order_version = 0
    with pytest.raises(JobConflictError, match="version 0 of the order of rows"):
        open_all(job)


def test_a_job_without_a_random_order_has_no_version_of_it(described: Describe) -> None:
    assert described("sharded").order_version == 0


def test_a_job_shows_whether_one_of_its_splits_reads_the_epoch(described: Describe) -> None:
    found = {name: described(name).varies for name in ("sharded", "drawn", "sharded_by_seed")}
    assert found == {"sharded": False, "drawn": True, "sharded_by_seed": True}
