"""The last error of a dataset is reported for some minutes."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import DatasetFnError, UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import MAX_FAILURE_TEXT
from distributed_input.worker.dataset_failures import KEPT_SECONDS, DatasetFailures, summary

JOB = types_pb2.Job(entry_point=types_pb2.EntryPoint(target="data:rows"))


def fail(failures: DatasetFailures, error: Exception) -> None:
    with pytest.raises(type(error)), failures.recorded(JOB):
        raise error


def test_the_last_error_is_reported_until_it_is_old() -> None:
    now = 100.0
    failures = DatasetFailures(lambda: now)
    assert failures.last() is None
    fail(failures, DatasetFnError("no file a"))
    now += 20
    fail(failures, DatasetFnError("no file b"))
    now += KEPT_SECONDS
    found = failures.last()
    assert found is not None
    assert (found.dataset, found.message) == ("data:rows", "no file b")
    now += 1
    assert failures.last() is None


def test_only_errors_of_datasets_are_reported() -> None:
    failures = DatasetFailures()
    with failures.recorded(JOB):
        pass
    fail(failures, UnavailableError("the worker is draining"))
    assert failures.last() is None


def test_the_summary_has_the_first_line_and_the_last_line_of_code() -> None:
    trace = '  File "/a/data.py", line 3, in rows\n    f()\n  File "/a/read.py", line 7, in f'
    text = summary(DatasetFnError(f"dataset_fn failed: KeyError: 'id'\nmore\n{trace}"))
    assert text == "dataset_fn failed: KeyError: 'id' (/a/read.py:7)"
    assert summary(DatasetFnError("no row")) == "no row"
    library = '  File "/env/site-packages/tensorflow/ops.py", line 6, in next'
    assert summary(DatasetFnError(f"no row\n{trace}\n{library}")) == "no row (/a/read.py:7)"
    assert summary(DatasetFnError(f"no row\n{library}")) == "no row"


def test_a_name_of_a_file_that_is_not_utf_8_is_reported_with_escapes() -> None:
    failures = DatasetFailures()
    fail(failures, DatasetFnError('no file\n  File "/caf\udce9.py", line 3'))
    found = failures.last()
    assert found is not None
    assert found.message == "no file (/caf\\udce9.py:3)"


def test_the_middle_of_a_long_summary_is_left_out() -> None:
    text = summary(DatasetFnError(f'begin{"x" * 5000}end\n  File "/a/data.py", line 3'))
    assert MAX_FAILURE_TEXT - 2 < len(text) <= MAX_FAILURE_TEXT
    assert text.startswith("beginxxx")
    assert text.endswith("xend (/a/data.py:3)")
    longest = "x" * MAX_FAILURE_TEXT
    assert summary(DatasetFnError(longest)) == longest
