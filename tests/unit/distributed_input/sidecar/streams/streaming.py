"""Streams of one split and the workers that serve them, without a dispatcher."""

from __future__ import annotations

import threading
import time

from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link import serving
from distributed_input.link.credentials import Credentials
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.streams.epoch_plan import EpochPlan
from distributed_input.sidecar.streams.split_stream import SplitStream
from distributed_input.sidecar.streams.stream_context import StreamContext, StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar.system import NUMBERS, Worker, worker_handler

ROWS = 12
"""Rows of the split."""
SECONDS = 10.0


def serve(worker: Worker) -> serving.Server:
    """Serve a worker on a port of its own."""
    server = serving.make_server([worker_handler(worker)], "127.0.0.1:0", Credentials())
    server.start()
    return server


def info(name: str, server: serving.Server) -> dispatcher_pb2.WorkerInfo:
    """Return what the dispatcher would report of a worker."""
    return dispatcher_pb2.WorkerInfo(worker_id=name, address=server.address)


def context(
    pool: WorkerPool, *, timeout: float = SECONDS, strict: bool = False, splits: int = 1
) -> StreamContext:
    """Return the context of an epoch with one partition."""
    job = types_pb2.Job(
        name="train", num_splits=splits, partitions=1, strict=strict, row_spec=NUMBERS.to_json()
    )
    plan = EpochPlan.of_job(job, epoch=0, consumer=0)
    lock = threading.Lock()
    return StreamContext(plan, pool, StreamStats(), lock, threading.Condition(lock), timeout)


def open_stream(shared: StreamContext, start_row: int = 0) -> SplitStream:
    """Open a stream of the only split."""
    return open_split(shared, 0, 0, start_row, None)


def open_split(
    shared: StreamContext, split: int, ordinal: int, start_row: int, prefix: Prefix | None
) -> SplitStream:
    """Open a stream, as the partition's reader does."""
    with shared.lock:
        return SplitStream(shared, split, ordinal, start_row, prefix)


def take_all(shared: StreamContext, stream: SplitStream) -> int:
    """Take all rows of a stream, as the partition's reader does. Return their number."""
    rows, deadline = 0, time.monotonic() + SECONDS
    with shared.lock:
        while not stream.exhausted:
            rows += sum(block.rows for block in stream.next(100))
            assert time.monotonic() < deadline, "no row came"
            shared.arrived.wait(0.1)
    return rows
