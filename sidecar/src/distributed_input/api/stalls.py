"""Texts about datasets that do not work: no progress, errors, and records that were left out."""

from __future__ import annotations

from typing import Any

from distributed_input.api.proto import types_pb2

STALL_SECONDS = 10.0
"""A split is reported if its next rows take longer than this to compute."""
IN_TENSORFLOW = "in TensorFlow"
"""Where a split is that runs no line of the user's Python code."""
FULL_QUEUES = "splits are larger than the sidecar's queues"
"""First words of what limits the workers that a consumer can use, while queues are full."""
MAX_STALLED = 16
"""Maximum number of splits that a worker reports, the longest first."""
STEPS = ("importing the module of", "describing")
"""Steps of the description of a dataset."""
KILLED = "SIGKILL, which the kernel sends if memory is short, or os._exit"
"""The crash of a worker that ended without a note about the cause. It may come from outside."""
MAX_FAILURE_TEXT = 512
"""Maximum length of the error of a dataset that a worker reports."""

MAX_SHOWN = 1000
"""Number of records that were left out of which a dispatcher keeps more than their number."""


def dataset_name(job: types_pb2.Job) -> str:
    """Return the name of a job's dataset: its entry point and source, or a part of its id."""
    name, source = job.entry_point.target, job.entry_point.source
    return f"{name} ({source})" if source else name or f"of the trainer ({job.dataset_id[:12]})"


def stall_text(stalled: types_pb2.StalledSplit) -> str:
    """Return one line about what takes long or has ended a worker: a split, or a description."""
    dataset, split, epoch = stalled.dataset, stalled.split, stalled.epoch
    if stalled.crash and stalled.step:
        text = f"{stalled.step} dataset {dataset} ended a worker: {stalled.crash}"
    elif stalled.crash:
        text = (
            f"{_rows(stalled)} of split {split} of dataset {dataset} ended a worker in epoch "
            f"{epoch}: {stalled.crash}"
        )
    elif stalled.step:
        text = f"{stalled.step} dataset {dataset} has taken {stalled.seconds:.0f} s"
    else:
        text = (
            f"split {split} of dataset {dataset} has computed row {stalled.row} of epoch {epoch} "
            f"for {stalled.seconds:.0f} s"
        )
    return f"{text}, {stalled.at}" if stalled.at else text


def crash_text(crash: types_pb2.StalledSplit, workers: int) -> str:
    """Return the error for what has ended several workers."""
    rest = ", or skip the row" if not crash.step else ""
    remedy = (
        "Raise the memory limit in spec.workers.template, or make what it holds smaller"
        if crash.crash == KILLED
        else "Fix what this line calls"
    )
    return f"{stall_text(crash)}. It has ended {workers} workers. {remedy}{rest}"


def _rows(crash: types_pb2.StalledSplit) -> str:
    if crash.rows > 1:
        return f"one of the rows {crash.row} to {crash.row + crash.rows - 1}"
    return f"row {crash.row}"


def failure_text(failure: types_pb2.DatasetFailure) -> str:
    """Return one line about an error of a dataset."""
    if failure.dataset in failure.message:
        return failure.message
    return f"dataset {failure.dataset}: {failure.message}"


def key_of(record: types_pb2.SkippedRecord) -> tuple[object, ...]:
    """Return what identifies a record. A replay reports it again."""
    place = record.dataset, record.first_run, record.epoch, record.split
    return (*place, record.step, record.file, record.index)


def skipped_text(record: types_pb2.SkippedRecord) -> str:
    """Return one line about a record that was left out."""
    file = f" of {record.file}" if record.file else ""
    split = "" if record.split < 0 else f", split {record.split}"
    shown = f" ({record.record})" if record.record else ""
    place = f"record {record.index}{file} in {record.step}, epoch {record.epoch}{split}"
    return f"{place}: {record.error}{shown}"


def skipped_value(record: types_pb2.SkippedRecord) -> dict[str, Any]:
    """Return a record that was left out as JSON values. `split` -1: all splits compute it."""
    return {
        "dataset": record.dataset,
        "epoch": record.epoch,
        "split": record.split,
        "step": record.step,
        "index": record.index,
        "file": record.file or None,
        "record": record.record or None,
        "error": record.error,
    }
