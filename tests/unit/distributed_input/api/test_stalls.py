"""Splits without progress are described by dataset, split and row; errors by dataset."""

from __future__ import annotations

import pytest

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import dataset_name, failure_text, stall_text

ENTRY_POINT = types_pb2.EntryPoint(target="data:rows")


@pytest.mark.parametrize(
    ("job", "name"),
    [
        (types_pb2.Job(entry_point=ENTRY_POINT, dataset_id="0123456789abcdef"), "data:rows"),
        (types_pb2.Job(dataset_id="0123456789abcdef"), "of the trainer (0123456789ab)"),
    ],
)
def test_a_dataset_is_named_by_its_entry_point_or_its_id(job: types_pb2.Job, name: str) -> None:
    assert dataset_name(job) == name


def test_the_text_of_a_split_without_progress_names_it() -> None:
    stalled = types_pb2.StalledSplit(dataset="data:rows", epoch=2, split=3, row=7, seconds=34.2)
    assert stall_text(stalled) == (
        "split 3 of dataset data:rows has computed row 7 of epoch 2 for 34 s"
    )
    stalled.at = "in rows (data.py:3)"
    assert stall_text(stalled).endswith(" for 34 s, in rows (data.py:3)")


def test_a_crash_in_an_element_of_several_rows_names_them_all() -> None:
    crash = types_pb2.StalledSplit(dataset="data:rows", epoch=2, split=3, row=64, crash="Aborted")
    rest = " of split 3 of dataset data:rows ended a worker in epoch 2: Aborted"
    assert stall_text(crash) == f"row 64{rest}"
    crash.rows = 32
    assert stall_text(crash) == f"one of the rows 64 to 95{rest}"


def test_the_text_of_an_error_names_its_dataset() -> None:
    failure = types_pb2.DatasetFailure(dataset="data:rows", message="no file")
    assert failure_text(failure) == "dataset data:rows: no file"
    failure.message = "entry point data:rows failed"
    assert failure_text(failure) == failure.message
