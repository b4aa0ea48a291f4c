"""The parts of TFRecord files between corrupt records."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets.bad_records import SkippedRecords, SplitErrors
from distributed_input.worker.datasets.record_checks import find_parts

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


def test_a_compressed_file_does_not_continue(tmp_path: Path, errors: SplitErrors) -> None:
    file = _write(tmp_path / "a.tfrecord", [30], "GZIP")
    with pytest.raises(tf.errors.DataLossError):
        find_parts(file, "GZIP", errors)


def test_a_missing_file_is_an_error(tmp_path: Path, errors: SplitErrors) -> None:
    with pytest.raises(tf.errors.NotFoundError):
        find_parts(str(tmp_path / "absent"), "", errors)
