"""The parts of TFRecord files between corrupt records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.proto import types_pb2
from distributed_input.graph.definition import canonical
from distributed_input.worker.datasets.bad_records import SkippedRecords, SplitErrors
from distributed_input.worker.datasets.record_checks import READER, find_parts, guard

_SIZE = 12 + 4 + 4  # of a record


@pytest.fixture
def skipped() -> SkippedRecords:
    return SkippedRecords()


@pytest.fixture
def errors(skipped: SkippedRecords) -> SplitErrors:
    job = types_pb2.Job(dataset_id="0" * 64)
    job.bad_records.per_split, job.bad_records.percent = 100, 100
    return SplitErrors(job, 0, 0, skipped)


def _write(path: Path, damaged: list[int], compression: str = "") -> str:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for number in range(10):
            writer.write(b"%04d" % number)
    data = bytearray(path.read_bytes())
    for at in damaged:
        data[at] ^= 1
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    ("damaged", "parts"),
    [
        ([], [(0, 10)]),
        ([3 * _SIZE + 12], [(0, 3), (4 * _SIZE, 6)]),  # data
        ([3 * _SIZE + 17], [(0, 3), (4 * _SIZE, 6)]),  # its checksum
        ([3 * _SIZE], [(0, 3), (4 * _SIZE, 6)]),  # length
        ([3 * _SIZE + 9], [(0, 3), (4 * _SIZE, 6)]),  # its checksum
        ([0], [(_SIZE, 9)]),
        ([9 * _SIZE + 13], [(0, 9)]),
        ([9 * _SIZE], [(0, 9)]),
        ([12, _SIZE, 5 * _SIZE], [(2 * _SIZE, 3), (6 * _SIZE, 4)]),
    ],
)
def test_parts_are_between_corrupt_records(
    tmp_path: Path,
    errors: SplitErrors,
    skipped: SkippedRecords,
    damaged: list[int],
    parts: list[tuple[int, int]],
) -> None:
    file = _write(tmp_path / "a.tfrecord", damaged)
    assert find_parts(file, "", errors) == parts
    found = skipped.report()
    assert [one.index for one in found] == sorted(at // _SIZE for at in damaged)
    assert {one.file for one in found} <= {file}


@pytest.mark.parametrize(
    ("damaged", "excluded", "parts"),
    [
        ([], [0], [(_SIZE, 9)]),
        ([], [9], [(0, 9)]),
        ([], [4, 3, 6], [(0, 3), (5 * _SIZE, 1), (7 * _SIZE, 3)]),
        ([3 * _SIZE + 12], [3, 5], [(0, 3), (4 * _SIZE, 1), (6 * _SIZE, 4)]),
        ([3 * _SIZE + 12], [4, 99], [(0, 3), (5 * _SIZE, 5)]),
    ],
)
def test_parts_are_between_excluded_records(
    tmp_path: Path,
    skipped: SkippedRecords,
    damaged: list[int],
    excluded: list[int],
    parts: list[tuple[int, int]],
) -> None:
    file = _write(tmp_path / "a.tfrecord", damaged)
    assert find_parts(file, "", _excluding(skipped, excluded, file=file)) == parts
    errors = {one.index: one.error for one in skipped.report()}
    assert {at for at in errors if "excluded" in errors[at]} == set(excluded) - {99}
    assert set(errors) == {*excluded, *(at // _SIZE for at in damaged)} - {99}


def test_files_without_excluded_records_are_whole(tmp_path: Path, skipped: SkippedRecords) -> None:
    file = _write(tmp_path / "a.tfrecord", [])
    assert find_parts(file, "", _excluding(skipped, [3], file="/b.tfrecord")) == [(0, 10)]
    assert not skipped.report()


def test_no_record_of_a_compressed_file_is_excluded(
    tmp_path: Path, skipped: SkippedRecords
) -> None:
    file = _write(tmp_path / "a.tfrecord", [], "GZIP")
    with pytest.raises(DatasetFnError, match="is compressed"):
        find_parts(file, "GZIP", _excluding(skipped, [3]))


def _excluding(
    skipped: SkippedRecords, indexes: list[int], step: str = READER, **fields: Any
) -> SplitErrors:
    job = types_pb2.Job(dataset_id="0" * 64)
    job.bad_records.per_split, job.bad_records.percent = 100, 100
    for index in indexes:
        job.bad_records.excluded.add(step=step, index=index, **fields)
    return SplitErrors(job, 0, 0, skipped)


def _kept(value: tf.Tensor) -> tf.Tensor:
    return tf.identity(value)


def _files(path: tf.Tensor) -> tf.data.Dataset:
    return tf.data.TextLineDataset(path).map(_kept)


_TEN = tf.data.Dataset.range(10)
_TWO_FILES = tf.data.TFRecordDataset(["/a", "/b"])


@pytest.mark.parametrize(
    ("dataset", "fields", "problem"),
    [
        (_TEN.map(_kept), {"step": "other"}, r"has 0 such steps\. .* are Dataset_map__kept"),
        (_TEN.map(_kept).map(_kept), {}, "has 2 such steps"),
        (_TEN.map(_kept), {"step": READER}, "has 0 such steps"),
        (_TEN.shuffle(3).map(_kept), {}, "a shuffle comes before this step"),
        (_TEN.map(_kept).shuffle(3), {}, ""),
        (_TEN.shuffle(3).map(_kept), {"epoch": 0}, ""),
        (_TEN.map(_kept).shard(2, 0), {"split": 0}, "all splits get the records"),
        (_TEN.shard(2, 0).map(_kept), {"split": 0}, ""),
        (tf.data.Dataset.from_tensors("/a").flat_map(_files), {}, "for several files"),
        (tf.data.Dataset.from_tensors("/a").flat_map(_files), {"file": "/a"}, ""),
        (_TWO_FILES, {"step": READER}, r"each file may have such a record\. Set the file"),
        (_TWO_FILES, {"step": READER, "file": "/a"}, ""),
    ],
)
def test_records_that_are_not_known_for_certain_are_errors(
    skipped: SkippedRecords, dataset: tf.data.Dataset, fields: dict[str, Any], problem: str
) -> None:
    errors = _excluding(skipped, [3], **{"step": "Dataset_map__kept", **fields})
    graph = canonical.serialize(dataset)
    if problem:
        with pytest.raises(DatasetFnError, match=problem):
            guard(graph, errors, has_files=True)
    else:
        guard(graph, errors, has_files=True)


def test_a_compressed_file_does_not_continue(tmp_path: Path, errors: SplitErrors) -> None:
    file = _write(tmp_path / "a.tfrecord", [30], "GZIP")
    with pytest.raises(tf.errors.DataLossError):
        find_parts(file, "GZIP", errors)


def test_a_missing_file_is_an_error(tmp_path: Path, errors: SplitErrors) -> None:
    with pytest.raises(tf.errors.NotFoundError):
        find_parts(str(tmp_path / "absent"), "", errors)
