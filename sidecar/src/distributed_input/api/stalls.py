"""Texts about datasets that do not work: splits without progress, and errors."""

from __future__ import annotations

from distributed_input.api.proto import types_pb2

STALL_SECONDS = 10.0
"""A split is reported if its next rows take longer than this to compute."""
IN_TENSORFLOW = "in TensorFlow"
"""Where a split is that runs no line of the user's Python code."""
FULL_QUEUES = "splits are larger than the sidecar's queues"
"""First words of what limits the workers that a consumer can use, while queues are full."""
MAX_STALLED = 16
"""Maximum number of splits that a worker reports, the longest first."""
MAX_FAILURE_TEXT = 512
"""Maximum length of the error of a dataset that a worker reports."""


def dataset_name(job: types_pb2.Job) -> str:
    """Return the name of a job's dataset: its entry point, or a part of its id."""
    return job.entry_point.target or f"of the trainer ({job.dataset_id[:12]})"


def stall_text(stalled: types_pb2.StalledSplit) -> str:
    """Return one line about a split whose next rows take long, or that has ended a worker."""
    if stalled.crash:
        text = (
            f"row {stalled.row} of split {stalled.split} of dataset {stalled.dataset} ended a "
            f"worker in epoch {stalled.epoch}: {stalled.crash}"
        )
        return f"{text}, {stalled.at}" if stalled.at else text
    text = (
        f"split {stalled.split} of dataset {stalled.dataset} has computed row {stalled.row} of "
        f"epoch {stalled.epoch} for {stalled.seconds:.0f} s"
    )
    return f"{text}, {stalled.at}" if stalled.at else text


def failure_text(failure: types_pb2.DatasetFailure) -> str:
    """Return one line about an error of a dataset."""
    if failure.dataset in failure.message:
        return failure.message
    return f"dataset {failure.dataset}: {failure.message}"
