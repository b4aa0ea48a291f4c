"""Builders of messages. A test sets only the fields that it checks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from distributed_input.api.proto.dispatcher_pb2 import (
    ConsumerHeartbeatRequest,
    PartitionFact,
    WorkerHeartbeatRequest,
)
from distributed_input.api.proto.types_pb2 import Job
from distributed_input.api.protocol import PROTOCOL
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.dispatcher.state import DispatcherState

PARTITIONS, SPLITS = 4, 16


def state(**limits: Any) -> DispatcherState:
    """Return a dispatcher's state at time 0."""
    return DispatcherState("d", 0.0, DispatcherLimits(**limits))


def job(name: str = "train", data: bytes = b"data", **fields: Any) -> Job:
    """Return a complete job with dataset `data`."""
    fields = {"partitions": PARTITIONS, "num_splits": SPLITS, **fields}
    return Job(name=name, dataset_id=hashlib.sha256(data).hexdigest(), **fields)


def without_run(job: Job) -> Job:
    """Return a copy of a job without its run."""
    copy = Job()
    copy.CopyFrom(job)
    copy.run = copy.first_run = ""
    return copy


def worker(worker_id: str = "w", address: str = "h:1", **fields: Any) -> WorkerHeartbeatRequest:
    """Return a worker's heartbeat."""
    fields = {"protocol": PROTOCOL, **fields}
    return WorkerHeartbeatRequest(worker_id=worker_id, address=address, **fields)


def consumer(
    index: int = 0, count: int = 2, incarnation: str = "1", name: str = "train", **fields: Any
) -> ConsumerHeartbeatRequest:
    """Return a consumer's heartbeat."""
    fields = {"protocol": PROTOCOL, **fields}
    return ConsumerHeartbeatRequest(
        job=name, index=index, count=count, incarnation=incarnation, **fields
    )


def fact(partition: int = 0, split_rows: Sequence[int] = (), **fields: Any) -> PartitionFact:
    """Return a fact about a partition."""
    return PartitionFact(partition=partition, split_rows=split_rows, **fields)
