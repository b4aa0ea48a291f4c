"""Samples of a dispatcher's status."""

from __future__ import annotations

from typing import Any

from distributed_input.api.proto import types_pb2
from distributed_input.runner.display.stats import Consumer, StatusSample, Worker

STALLED = types_pb2.StalledSplit(dataset="data:rows", step="describing", seconds=12)
STALL = "describing dataset data:rows has taken 12 s"
FAILURE = types_pb2.DatasetFailure(dataset="data:rows", message="no file")
FAILED = "dataset data:rows: no file"


def consumer(trainer: str = "t", **fields: Any) -> Consumer:
    """Return a consumer whose counts are those of the process `trainer`."""
    received = types_pb2.ReceivedTotals(trainer=trainer)
    return Consumer(**{"job": "train", "incarnation": "i", "received": received, **fields})


def worker(name: str = "w", **fields: Any) -> Worker:
    """Return a worker at the address NAME:1."""
    return Worker(worker_id=name, address=f"{name}:1", **fields)


def with_job(**fields: Any) -> StatusSample:
    """Return the status of a dispatcher with the job `train`, whose batch size is known."""
    return StatusSample(jobs=[types_pb2.Job(**{"name": "train", "global_batch_size": 8, **fields})])
