"""A pool reads all splits of a worker over one connection, and opens another one if it breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc

from distributed_input.api.proto import worker_pb2
from distributed_input.sidecar.streams.split_stream import SplitStream
from distributed_input.sidecar.streams.stream_context import StreamContext
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar.streams.streaming import (
    ROWS,
    context,
    info,
    open_split,
    open_stream,
    serve,
    take_all,
)
from tests.unit.distributed_input.sidecar.system import Worker, eventually


class CountingWorker(Worker):
    """Counts its connections. The first one breaks after some messages."""

    def __init__(self, breaks_after: int = 1 << 30) -> None:
        super().__init__(4 * ROWS)
        self.requests: list[list[worker_pb2.ConnectRequest]] = []
        self._breaks_after = breaks_after

    def Connect(self, requests: Any, context: Any) -> Iterator[bytes]:  # noqa: N802
        self.requests.append([])
        messages = super().Connect(self._recorded(requests, self.requests[-1]), context)
        for count, message in enumerate(messages):
            if len(self.requests) == 1 and count >= self._breaks_after:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
            yield message

    def _recorded(
        self, requests: Any, found: list[worker_pb2.ConnectRequest]
    ) -> Iterator[worker_pb2.ConnectRequest]:
        for request in requests:
            found.append(request)
            yield request


def open_all(shared: StreamContext) -> list[SplitStream]:
    return [open_split(shared, split, at, 0, None) for at, split in enumerate(shared.plan.deal[0])]


def test_all_splits_of_a_worker_share_one_call(pool: WorkerPool) -> None:
    worker = CountingWorker()
    server = serve(worker)
    pool.update([info("worker", server)])
    shared = context(pool, splits=4)
    streams = open_all(shared)
    assert [take_all(shared, stream) for stream in streams] == [ROWS] * 4
    assert len(worker.requests) == 1
    server.stop(0)


def test_streams_of_a_connection_that_breaks_continue_on_a_new_one(pool: WorkerPool) -> None:
    worker = CountingWorker(breaks_after=5)
    server = serve(worker)
    pool.update([info("worker", server)])
    shared = context(pool, splits=4)
    streams = open_all(shared)
    assert [take_all(shared, stream) for stream in streams] == [ROWS] * 4
    assert len(worker.requests) == 2
    assert shared.stats.reconnects.total() <= 4
    assert pool.lost_workers == 1
    server.stop(0)


def test_a_closed_pool_ends_the_connection(pool: WorkerPool) -> None:
    worker = CountingWorker()
    server = serve(worker)
    pool.update([info("worker", server)])
    shared = context(pool)
    assert take_all(shared, open_stream(shared)) == 4 * ROWS

    def threads() -> list[str]:
        return [one.name for one in threading.enumerate() if one.name == "worker-worker"]

    assert threads()
    pool.close()
    eventually(lambda: not threads())
    server.stop(0)
