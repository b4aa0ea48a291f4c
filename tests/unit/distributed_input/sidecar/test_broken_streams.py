"""What a stream does with each kind of end that is not its split's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    DistributedInputError,
    ReplayError,
    UnavailableError,
)
from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock, digest_of
from distributed_input.sidecar.streams.pool import WorkerPool
from distributed_input.sidecar.streams.streams import SplitStream
from tests.unit.distributed_input.sidecar.streaming import (
    ROWS,
    SECONDS,
    all_rows,
    context,
    info,
    served,
)
from tests.unit.distributed_input.sidecar.system import Worker, eventually

AWAY = UnavailableError("the worker is leaving")
USERS = DatasetFnError("the dataset: ZeroDivisionError")
DIGESTS = np.arange(1, ROWS + 1, dtype=np.uint64)


class Scripted(Worker):
    """For each call some rows and an error, as the script says; when it is over, all is well.

    Attributes:
        asked: all requests.
    """

    def __init__(self, *script: tuple[int, DistributedInputError], seconds: float = 0.0) -> None:
        super().__init__(ROWS)
        self._script, self._seconds = list(script), seconds
        self.asked: list[worker_pb2.StreamRequest] = []

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        self.asked.append(request)
        if not self._script:
            yield from super().Stream(request, context)
            return
        rows, error = self._script.pop(0)
        if rows:
            yield made(request, rows)
        threading.Event().wait(self._seconds)
        raise error


def made(request: worker_pb2.StreamRequest, rows: int, **block: Any) -> bytes:
    """A block of the rows that are asked for."""
    first = request.start_row
    data = np.arange(first, first + rows, dtype=np.int64).view(np.uint8)
    digests = DIGESTS[first : first + rows]
    before = digest_of(DIGESTS[:first])
    return blocks.encode(RowBlock(first, rows, (data,), digests, prefix_digest=before, **block))


def read(pool: WorkerPool, worker: Worker, timeout: float = SECONDS, strict: bool = False) -> int:
    """All rows of the split by one worker; how many. Raises what ends the stream."""
    server = served(worker)
    pool.update([info("it", server)])
    of = replace(context(pool), timeout_seconds=timeout)
    of.job.strict = strict
    try:
        return all_rows(of, SplitStream(of, 0, 0, 0, None))
    finally:
        server.stop(0)


def test_rows_come_before_the_error_behind_them(pool: WorkerPool) -> None:
    worker = Scripted((5, ConfigError("no such column")))
    server = served(worker)
    pool.update([info("it", server)])
    of = context(pool)
    stream = SplitStream(of, 0, 0, 0, None)
    eventually(lambda: stream._error is not None)
    with of.lock:
        assert [run.rows for run in stream.take(3)] == [3]
        assert [run.rows for run in stream.take(3)] == [2]
        with pytest.raises(ConfigError, match="no such column"):
            stream.take(3)
    server.stop(0)
    assert len(worker.asked) == 1  # nobody else would say anything else


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        ([(0, USERS)] * 2, 3),
        ([(0, AWAY)] * 4 + [(0, USERS)] * 2, 7),
        ([(0, USERS)] * 2 + [(3, USERS)] + [(0, USERS)], 5),
    ],
    ids=["may be the node's", "others do not count", "rows in between begin anew"],
)
def test_a_users_error_is_tried_elsewhere(
    pool: WorkerPool, script: Sequence[tuple[int, DistributedInputError]], calls: int
) -> None:
    worker = Scripted(*script)
    assert read(pool, worker) == ROWS
    assert len(worker.asked) == calls


def test_a_users_error_that_is_everywhere_is_raised(pool: WorkerPool) -> None:
    worker = Scripted(*[(0, USERS)] * 9)
    with pytest.raises(DatasetFnError, match="ZeroDivisionError"):
        read(pool, worker)
    assert len(worker.asked) == 3


def test_the_time_begins_anew_with_each_row(pool: WorkerPool) -> None:
    worker = Scripted(*[(1, AWAY)] * 6, seconds=0.3)
    assert read(pool, worker, timeout=1.0) == ROWS


def test_without_any_worker_the_time_ends(pool: WorkerPool) -> None:
    of = replace(context(pool), timeout_seconds=0.3)
    with pytest.raises(UnavailableError, match=r"no worker of job train .*timeoutSeconds"):
        all_rows(of, SplitStream(of, 0, 0, 0, None))


def test_what_is_asked_for_again_is_what_was_not_received(pool: WorkerPool) -> None:
    worker = Scripted((5, AWAY), (0, AWAY))
    assert read(pool, worker) == ROWS
    known = [(one.start_row, one.check_prefix, one.prefix_rows) for one in worker.asked]
    assert known == [(0, False, 0), (5, True, 5), (5, True, 5)]
    digests = [one.prefix_digest for one in worker.asked]
    assert digests == [0, *[digest_of(DIGESTS[:5])] * 2]


class Different(Worker):
    """Says that the rows before are others."""

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        yield made(request, 2, prefix_differs=True)
        yield from super().Stream(request, context)


def test_rows_behind_others_than_before_are_not_given_where_that_is_an_error(
    pool: WorkerPool,
) -> None:
    with pytest.raises(ReplayError, match="split 0 of epoch 0"):
        read(pool, Different(ROWS), strict=True)


def test_a_stream_that_is_closed_waits_for_no_worker(pool: WorkerPool) -> None:
    of = context(pool)
    stream = SplitStream(of, 0, 0, 0, None)
    eventually(lambda: "worker" in of.stats.waiting)
    with of.lock:
        stream.close()
    stream._thread.join(SECONDS)
    assert not of.stats.waiting


class Hanging(Scripted):
    """After the first rows of the first call, nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.over = threading.Event(), threading.Event()

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        yield made(request, 3)
        self.sent.set()
        self.over.wait(3 * SECONDS)


@pytest.mark.parametrize("draining", [False, True])
def test_a_worker_whose_streams_break_unexplained_is_lost_unless_it_leaves(
    pool: WorkerPool, draining: bool
) -> None:
    hanging = Hanging()
    first, second = served(hanging), served(Worker(ROWS))
    pool.update([info("first", first)])
    of = context(pool)
    stream = SplitStream(of, 0, 0, 0, None)
    assert hanging.sent.wait(SECONDS)
    eventually(lambda: stream.received == 3)
    leaving = info("first", first)
    leaving.draining = draining
    pool.update([leaving, info("second", second)])
    first.stop(0)
    assert all_rows(of, stream) == ROWS
    assert of.stats.lost_workers == (set() if draining else {"first"})
    hanging.over.set()
    second.stop(0)


def test_a_worker_that_says_why_is_not_lost(pool: WorkerPool) -> None:
    server = served(Scripted((3, AWAY)))
    pool.update([info("it", server)])
    of = context(pool)
    assert all_rows(of, SplitStream(of, 0, 0, 0, None)) == ROWS
    assert not of.stats.lost_workers
    server.stop(0)
