"""Which errors are those of a record, the limits, and what is reported."""

from __future__ import annotations

import io
import threading
import zlib
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets.bad_records import (
    SkippedRecords,
    SplitErrors,
    first_line,
    is_of_record,
)


class UnidentifiedImageError(OSError):
    """As in Pillow."""


def _python(text: str) -> tf.errors.OpError:
    place = "Error in user-defined function passed to Map:1 transformation with iterator: It::Map: "
    return tf.errors.UnknownError(None, None, f"{place}{text}\nTraceback")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (tf.errors.InvalidArgumentError(None, None, "parse"), True),
        (tf.errors.DataLossError(None, None, "corrupted record at 12"), True),
        (tf.errors.NotFoundError(None, None, "file"), False),
        (tf.errors.UnavailableError(None, None, "storage"), False),
        (tf.errors.ResourceExhaustedError(None, None, "memory"), False),
        (_python("KeyError: 'id'"), True),
        (_python("ConnectionError: reset"), False),
        (_python("OSError: [Errno 5] input"), False),
        (_python("NotFoundError: storage"), False),
        (ValueError("json"), True),
        (zlib.error("data"), True),
        (UnidentifiedImageError("image"), True),
        (io.UnsupportedOperation("read"), False),  # a ValueError and an OSError
        (TimeoutError("storage"), False),
        (RuntimeError("unknown"), False),
        (MemoryError(), False),
    ],
)
def test_only_known_errors_are_of_a_record(error: Exception, expected: bool) -> None:
    assert is_of_record(error) is expected


def test_the_first_line_has_the_class_of_python() -> None:
    assert first_line(_python("KeyError: 'id'")) == "KeyError: 'id'"
    assert first_line(ValueError("a\nb")) == "ValueError: a"


def _errors(skipped: SkippedRecords, per_split: int = 100, percent: int = 100) -> SplitErrors:
    job = types_pb2.Job(dataset_id="0" * 64)
    job.bad_records.per_split, job.bad_records.percent = per_split, percent
    return SplitErrors(job, 1, 2, skipped)


def test_a_record_has_its_place_and_readable_text() -> None:
    skipped = SkippedRecords()
    strings = [b"/data/1.jsonl", b"\xff\xd8", b'{"id"']
    _errors(skipped).skip(ValueError("json"), "parse", 7, strings, sources=1)
    (record,) = skipped.report()
    assert (record.epoch, record.split, record.step, record.index) == (1, 2, "parse", 7)
    assert (record.file, record.record) == ("/data/1.jsonl", '{"id"')


def test_other_errors_are_raised() -> None:
    with pytest.raises(TimeoutError):
        _errors(SkippedRecords()).skip(TimeoutError(), "parse", 7)


@pytest.mark.parametrize(
    ("per_split", "percent", "step", "skips", "field"),
    [(5, 100, 1, 5, "maxPerSplit"), (100, 10, 1, 11, "maxPercent"), (40, 10, 20, 40, "maxPer")],
)
def test_limits(per_split: int, percent: int, step: int, skips: int, field: str) -> None:
    errors = _errors(SkippedRecords(), per_split, percent)
    for number in range(skips):
        errors.skip(ValueError(), "parse", number * step)
    with pytest.raises(DatasetFnError, match=rf"spec\.badRecords\.{field}"):
        errors.skip(ValueError(), "parse", skips * step)


def _excluding(skipped: SkippedRecords, per_split: int = 1, **fields: Any) -> SplitErrors:
    """Return the errors of split 2 in epoch 1. A record of `parse` is excluded."""
    job = types_pb2.Job(dataset_id="0" * 64)
    job.bad_records.per_split, job.bad_records.percent = per_split, 100
    job.bad_records.excluded.add(step="parse", index=7, **fields)
    return SplitErrors(job, 1, 2, skipped)


@pytest.mark.parametrize("fields", [{}, {"file": "/a"}, {"split": 2}, {"epoch": 1}])
def test_an_excluded_record_is_reported(fields: dict[str, Any]) -> None:
    skipped = SkippedRecords()
    assert _excluding(skipped, **fields).exclude("parse", 7, [b"/a"], sources=1)
    (record,) = skipped.report()
    assert (record.step, record.index, record.file) == ("parse", 7, "/a")
    assert record.error == "excluded by spec.badRecords.exclude"


@pytest.mark.parametrize("fields", [{"file": "/b"}, {"split": 3}, {"split": 0}, {"epoch": 0}])
def test_another_record_is_not_excluded(fields: dict[str, Any]) -> None:
    skipped = SkippedRecords()
    assert not _excluding(skipped, **fields).exclude("parse", 7, [b"/a"], sources=1)
    for step, index in (("read", 7), ("parse", 8)):
        assert not _excluding(skipped).exclude(step, index, [b"/a"], sources=1)
    assert not skipped.report()


def test_an_excluded_record_that_fails_does_not_count() -> None:
    errors = _excluding(SkippedRecords(), per_split=1)
    errors.skip(TimeoutError(), "parse", 7)
    errors.skip(ValueError(), "parse", 8)
    with pytest.raises(DatasetFnError, match=r"more than 1 records"):
        errors.skip(ValueError(), "parse", 9)


def test_records_that_fail_are_errors_if_only_others_are_excluded() -> None:
    with pytest.raises(ValueError, match="json"):
        _excluding(SkippedRecords(), per_split=0).skip(ValueError("json"), "parse", 8)


def test_a_replay_adds_nothing() -> None:
    skipped = SkippedRecords()
    errors = _errors(skipped, per_split=1)
    for _ in range(3):
        errors.skip(ValueError(), "parse", 7)
    assert len(skipped.report()) == 1


def test_reports_repeat_what_was_sent() -> None:
    wake = threading.Event()
    skipped = SkippedRecords(wake)
    assert skipped.wait_sent(0)
    _errors(skipped).skip(ValueError(), "parse", 7)
    assert not skipped.wait_sent(0)
    assert wake.is_set()
    sent = skipped.report()
    assert not skipped.wait_sent(0)  # the dispatcher may not have received it
    skipped.confirm(sent)
    assert skipped.wait_sent(0)
    assert skipped.report() + skipped.report()  # another dispatcher gets it as well
