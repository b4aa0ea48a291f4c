"""One stream of a split, and the workers that it reads; there is no dispatcher."""

from __future__ import annotations

import threading
import time

from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.runtime import serving, stubs
from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar.streams.pool import WorkerPool
from distributed_input.sidecar.streams.streams import SplitStream, StreamContext, StreamStats
from tests.unit.distributed_input.sidecar.system import WORKER, Worker

ROWS = 12
"""Of the split."""
SECONDS = 10.0


def served(worker: Worker) -> serving.Server:
    """A worker on a port of its own."""
    handler = stubs.service_handler(WORKER, worker, {"Stream": (None, stubs.identity)})
    server = serving.make_server([handler], "127.0.0.1:0", Credentials())
    server.start()
    return server


def info(name: str, server: serving.Server) -> dispatcher_pb2.WorkerInfo:
    """What the dispatcher says of it."""
    return dispatcher_pb2.WorkerInfo(worker_id=name, address=server.address)


def context(pool: WorkerPool) -> StreamContext:
    """Of a job with one split."""
    lock = threading.Lock()
    job = types_pb2.Job(name="train", num_splits=1, partitions=1)
    arrived = threading.Condition(lock)
    return StreamContext(job, 0, 0, pool, StreamStats(), lock, arrived, SECONDS, [[0]], 1)


def all_rows(of: StreamContext, stream: SplitStream) -> int:
    """Take rows to the stream's end, as the assembler does; how many."""
    rows, deadline = 0, time.monotonic() + SECONDS
    with of.lock:
        while not stream.exhausted:
            rows += sum(run.rows for run in stream.take(100))
            assert time.monotonic() < deadline, "no row came"
            of.arrived.wait(0.1)
    return rows
