"""The stream of one split: rows, retries, prefixes, and what it leaves in memory.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    DistributedInputError,
    ReplayError,
    UnavailableError,
)
from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.reader import WorkerConnection
from distributed_input.link.credentials import Credentials
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.streams import split_stream, worker_pool
from distributed_input.sidecar.streams.split_stream import SplitStream
from distributed_input.sidecar.streams.stream_context import StreamContext
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar.streams.fake_workers import (
    DifferentWorker,
    HangingWorker,
    InvalidWorker,
    ReplayingWorker,
    ScriptedWorker,
    ShortWorker,
    StatefulWorker,
    block_of,
    prefix_of,
)
from tests.unit.distributed_input.sidecar.streams.given_workers import (
    GivenWorkers,
    block_at,
    cost_of,
)
from tests.unit.distributed_input.sidecar.streams.streaming import (
    ROWS,
    SECONDS,
    context,
    info,
    open_split,
    open_stream,
    serve,
    take_all,
)
from tests.unit.distributed_input.sidecar.system import Worker, eventually

LEAVING = UnavailableError("the worker is leaving")
ROW_COST = 8 + 8 + 512  # of a block with one row
DATASET_ERROR = DatasetFnError("the dataset: ZeroDivisionError")


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(Credentials())
    yield pool
    pool.close()


Served = Callable[..., StreamContext]


@pytest.fixture
def served(pool: WorkerPool) -> Iterator[Served]:
    """Start a worker, and return the context of an epoch that reads from it."""
    servers = []

    def start(worker: Worker, **values: Any) -> StreamContext:
        servers.append(serve(worker))
        pool.update([info("worker", servers[-1])])
        return context(pool, **values)

    yield start
    for server in servers:
        server.stop(0)


def given_context(queue_bytes: int = 1 << 20) -> tuple[GivenWorkers, StreamContext]:
    """Return workers that send what the test gives them, and the context of an epoch."""
    workers: Any = GivenWorkers()
    return workers, replace(context(workers), queue_bytes=queue_bytes)


def read(pool: WorkerPool, worker: Worker, timeout: float = SECONDS, strict: bool = False) -> int:
    """Read the split from one worker. Return the number of rows, or raise the stream's error."""
    server = serve(worker)
    pool.update([info("worker", server)])
    shared = context(pool, timeout=timeout, strict=strict)
    try:
        return take_all(shared, open_stream(shared))
    finally:
        server.stop(0)


# Errors.


def test_a_split_that_ends_several_workers_fails_with_the_signal_and_the_line() -> None:
    workers, shared = given_context()
    with shared.lock:
        stream = SplitStream(shared, 0, 0, 0, None)
    workers.calls[-1].send(2)
    workers.crashed = "row 77 of split 3 ended a worker"
    workers.break_stream()
    assert len(workers.calls) == 1, "it is not opened again"
    with shared.lock:
        assert [block.rows for block in stream.next(2)] == [2]
        with pytest.raises(DatasetFnError) as caught:
            stream.next(1)
    assert str(caught.value) == "row 77 of split 3 ended a worker"


def test_rows_received_before_an_error_are_returned_before_it(served: Served) -> None:
    worker = ScriptedWorker((5, ConfigError("no such column")))
    shared = served(worker)
    stream = open_stream(shared)
    eventually(lambda: stream._error is not None)
    with shared.lock:
        assert [block.rows for block in stream.next(3)] == [3]
        assert [block.rows for block in stream.next(3)] == [2]
        with pytest.raises(ConfigError, match="no such column"):
            stream.next(3)
    assert len(worker.requests) == 1  # a terminal error is not retried
    assert not shared.stats.reconnects


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "calls"),
    [
        ([(0, DATASET_ERROR)] * 2, 3),
        ([(0, LEAVING)] * 4 + [(0, DATASET_ERROR)] * 2, 7),
        ([(0, DATASET_ERROR)] * 2 + [(3, DATASET_ERROR)] + [(0, DATASET_ERROR)], 5),
    ],
    ids=["up to three attempts", "other errors do not count", "rows reset the count"],
)
def test_a_dataset_error_is_retried(
    pool: WorkerPool, script: Sequence[tuple[int, DistributedInputError]], calls: int
) -> None:
    worker = ScriptedWorker(*script)
    assert read(pool, worker) == ROWS
    assert len(worker.requests) == calls


def test_a_state_is_sent_until_a_worker_has_begun_to_use_it(pool: WorkerPool) -> None:
    worker = StatefulWorker()
    assert read(pool, worker) == ROWS
    assert [request.resume_token for request in worker.requests] == [b"", b"state", b"state", b""]
    assert {request.start_row for request in worker.requests[1:]} == {3}


def test_a_dataset_error_of_three_attempts_is_raised(pool: WorkerPool) -> None:
    worker = ScriptedWorker(*[(0, DATASET_ERROR)] * 9)
    with pytest.raises(DatasetFnError, match="ZeroDivisionError"):
        read(pool, worker)
    assert len(worker.requests) == 3


@pytest.mark.slow
def test_each_row_restarts_the_timeout(pool: WorkerPool) -> None:
    worker = ScriptedWorker(*[(1, LEAVING)] * 6, seconds=0.3)
    assert read(pool, worker, timeout=1.0) == ROWS


def test_a_stream_without_any_worker_times_out(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(pool, "acquire", lambda keys, key: asked.append(key))
    shared = context(pool, timeout=0.3)
    with shared.lock:
        stream = SplitStream(shared, 0, 0, 0, None)
        began = time.monotonic()
        shared.arrived.wait(3 * SECONDS)
        assert time.monotonic() - began < 2 * SECONDS, "the error wakes the reader"
    with pytest.raises(UnavailableError, match=r"no worker of job train .*timeoutSeconds"):
        take_all(shared, stream)
    assert len(asked) <= 3, "it waits between two attempts"


def test_a_bug_in_a_stream_is_reported_to_the_trainer(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SplitStream, "_accept", lambda self, block: 1 // 0)
    with pytest.raises(DistributedInputError, match="the sidecar failed: ZeroDivisionError"):
        read(pool, Worker(ROWS))


@pytest.mark.parametrize(
    "answer", [[], [b"\xff"], [b"\x7a\x80"]], ids=["nothing", "no protobuf", "cut short"]
)
def test_a_stream_with_an_invalid_answer_is_opened_again(
    served: Served, answer: list[bytes]
) -> None:
    shared = served(InvalidWorker(answer))
    assert take_all(shared, open_stream(shared)) == ROWS
    assert shared.stats.reconnects == Counter(UnavailableError=1)


@pytest.mark.parametrize("row", [1, 5])
def test_a_block_that_repeats_or_skips_rows_is_not_taken(served: Served, row: int) -> None:
    answer = [block_of(worker_pb2.StreamRequest(start_row=first), 3) for first in (0, row)]
    shared = served(InvalidWorker(answer))
    stream = open_stream(shared)
    assert take_all(shared, stream) == ROWS
    assert shared.stats.reconnects == Counter(UnavailableError=1)
    assert stream._prefix == Prefix(ROWS, prefix_of(3).digest), "the other rows are of one call"


# Replays.


def test_a_request_has_the_place_of_the_split_in_its_partition(served: Served) -> None:
    worker = ScriptedWorker((1, LEAVING))
    shared = served(worker, splits=8)
    stream = open_split(shared, shared.plan.deal[0][5], 5, 0, None)
    eventually(lambda: len(worker.requests) == 2)
    assert [request.ordinal for request in worker.requests] == [5, 5]
    with shared.lock:
        stream.close()


def test_a_reopened_stream_requests_the_rows_not_received_and_sends_its_prefix(
    pool: WorkerPool,
) -> None:
    worker = ScriptedWorker((5, LEAVING), (0, LEAVING))
    assert read(pool, worker) == ROWS
    sent = [(one.start_row, one.check_prefix) for one in worker.requests]
    assert sent == [(0, False), (5, True), (5, True)]
    prefixes = [Prefix(one.prefix_rows, one.prefix_digest) for one in worker.requests]
    assert prefixes == [Prefix(), prefix_of(5), prefix_of(5)]


def test_the_state_has_the_rows_that_the_worker_replayed_before_the_start(pool: WorkerPool) -> None:
    shared = context(pool)
    stream = open_stream(shared, start_row=3)
    assert stream.state() is None
    server = serve(ScriptedWorker((2, LEAVING)))
    pool.update([info("worker", server)])
    assert take_all(shared, stream) == ROWS - 3
    assert stream.state() == Prefix(ROWS, prefix_of(5).digest)  # later digests are 0
    server.stop(0)


def test_a_batch_takes_exactly_its_rows_of_several_blocks(pool: WorkerPool) -> None:
    worker = serve(ScriptedWorker((5, LEAVING)))
    pool.update([info("worker", worker)])
    shared = context(pool)
    stream = open_stream(shared)
    threads = [one for one in threading.enumerate() if one.name.startswith(("worker-", "split-"))]
    assert all(one.daemon for one in threads), "a worker that hangs does not keep the sidecar alive"
    eventually(lambda: stream.received == ROWS)
    with shared.lock:
        taken = [sum(block.rows for block in stream.next(rows)) for rows in (3, 4, 4)]
    assert taken == [3, 4, 4]
    worker.stop(0)


def numbers(rows: int) -> Prefix:
    """Return the first rows of the split of `GivenWorkers`."""
    return Prefix(rows, rows * (rows - 1) // 2)


@given(st.data())
def test_an_anchor_is_two_whole_blocks_before_the_rows_that_were_taken(data: st.DataObject) -> None:
    workers, shared = given_context()
    stream, borders, taken, longest = open_stream(shared), [0], 0, 0

    def check(found: Prefix, rows: int) -> None:
        assert found == numbers(rows)
        begun = [border for border in borders if border <= rows]
        expected = begun[-3] if len(begun) > 3 else 0
        if rows in borders[-1:] or rows not in borders:
            assert (found.anchor or Prefix()) == numbers(expected)
        assert found.anchor is None or found.anchor == numbers(found.anchor.rows)
        assert found.anchor is None or found.anchor.rows < rows

    for rows in data.draw(st.lists(st.integers(-9, 9), max_size=30)):
        if rows > 0:
            workers.calls[-1].send(rows)
            borders.append(borders[-1] + rows)
            longest = max(longest, len(stream._queue))
        elif rows == 0:
            workers.break_stream()
            request = workers.calls[-1].request
            anchor = Prefix(request.anchor_rows, request.anchor_digest)
            known = Prefix(
                request.prefix_rows, request.prefix_digest, anchor if anchor.rows else None
            )
            check(known, borders[-1])
        with shared.lock:
            taken += sum(block.rows for block in stream.next(max(0, -rows)))
            found = stream.state()
        assert found is not None
        check(found, taken)
        assert len(stream._borders) <= longest + 3


@pytest.mark.parametrize("strict", [False, True])
def test_a_strict_job_skips_no_rows(strict: bool) -> None:
    workers, shared = given_context()
    shared.plan.job.strict = strict
    anchor = Prefix(5, 99)
    stream = open_split(shared, 0, 0, 20, Prefix(18, 77, anchor))
    request = workers.calls[-1].request
    assert (request.prefix_rows, request.prefix_digest) == (18, 77)
    found = Prefix(request.anchor_rows, request.anchor_digest)
    assert found == (Prefix() if strict else anchor)
    known = stream.state()
    assert known is not None
    assert known.anchor == anchor


def test_a_restored_stream_keeps_its_anchor_until_there_is_a_later_one() -> None:
    workers, shared = given_context()
    stream = open_split(shared, 0, 0, 20, Prefix(18, 77, Prefix(5, 99)))
    anchors = []
    for _ in range(4):
        workers.calls[-1].send(2)
        with shared.lock:
            stream.next(2)
            found = stream.state()
        assert found is not None
        assert found.anchor is not None
        anchors.append(found.anchor.rows)
    assert anchors == [18, 20, 22, 24]


def test_rows_before_a_difference_are_no_anchor() -> None:
    workers, shared = given_context()
    stream = open_split(shared, 0, 0, 20, Prefix(20, 77, Prefix(5, 99)))
    call = workers.calls[-1]
    block = replace(block_at(20, 2), prefix_differs=True, prefix_digest=66)
    call.receiver.receive(call, block)
    with shared.lock:
        stream.next(1)
        found = stream.state()
    assert found == Prefix(21, 66 + 20)
    assert found is not None
    assert found.anchor is None or found.anchor == Prefix(20, 66)


def test_a_single_row_is_checked_by_a_replay(pool: WorkerPool) -> None:
    worker = ScriptedWorker((1, LEAVING))
    assert read(pool, worker) == ROWS
    assert [one.check_prefix for one in worker.requests] == [False, True]


@pytest.mark.parametrize("rows", [1, 5])
def test_received_rows_and_replays_are_counted(served: Served, rows: int) -> None:
    shared = served(ScriptedWorker((rows, LEAVING)))
    stream = open_stream(shared)
    assert take_all(shared, stream) == ROWS
    stats = shared.stats
    assert (stats.rows, stats.bytes, stats.replays) == (ROWS, 8 * ROWS, 1)
    assert stream.advanced_at > float("-inf")


class FailsThenHangs(HangingWorker):
    """Fails once, and then sends one answer and hangs."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self._answer: list[bytes] = [answer]
        self._failed = False

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        if not self._failed:
            self._failed = True
            raise LEAVING
        yield from self._answer
        self.called.set()
        self.released.wait(3 * SECONDS)


@pytest.mark.parametrize("replayed", [False, True])
def test_rows_and_replays_end_the_wait_for_a_worker(served: Served, replayed: bool) -> None:
    report = blocks.encode(RowBlock(0, 0, (), np.zeros(0, np.uint64), replayed=1))
    worker = FailsThenHangs(report if replayed else block_of(worker_pb2.StreamRequest(), 2))
    shared = served(worker)
    stream = open_stream(shared)
    assert worker.called.wait(SECONDS)
    eventually(lambda: bool(stream.replayed if replayed else stream.received))
    eventually(lambda: not shared.stats.waiting)
    assert shared.stats.reconnects.total() == 1
    with shared.lock:
        stream.close()
    worker.released.set()


def test_a_replay_that_differs_fails_a_strict_job(pool: WorkerPool) -> None:
    with pytest.raises(ReplayError, match="split 0 of epoch 0"):
        read(pool, DifferentWorker(ROWS), strict=True)


def test_a_difference_is_reported_once(served: Served) -> None:
    """The next worker compares with the rows of the last replay."""
    answer = block_of(worker_pb2.StreamRequest(start_row=3), 2, prefix_differs=True)
    shared = served(InvalidWorker([answer]))
    stream = open_split(shared, 0, 0, 3, Prefix(3, 999))
    assert take_all(shared, stream) == ROWS - 3
    assert len(shared.differences) == shared.stats.mismatches == 1
    assert stream._prefix == Prefix(ROWS, prefix_of(5).digest)


def test_a_replay_that_differs_ends_a_strict_stream_without_a_warning(served: Served) -> None:
    shared = served(DifferentWorker(ROWS), strict=True)
    stream = open_split(shared, 0, 0, 3, Prefix(3, 999))
    eventually(lambda: isinstance(stream._error, ReplayError))
    assert shared.differences == []


@pytest.mark.parametrize("later", [0, 4])
def test_a_replay_that_ends_before_the_received_rows_is_a_difference(
    served: Served, later: int
) -> None:
    shared = served(ShortWorker(5, later))
    stream = open_stream(shared)
    assert take_all(shared, stream) == 5
    assert stream.total == 5, "received rows stay counted"
    assert shared.stats.mismatches == 1
    (difference,) = shared.differences
    assert f"ended after {later} rows, but 5 rows were read before" in difference


def test_a_replay_that_ends_early_fails_a_strict_job(pool: WorkerPool) -> None:
    with pytest.raises(ReplayError, match="ended after 4 rows, but 5 rows were read before"):
        read(pool, ShortWorker(5, 4), strict=True)


def test_an_assumed_start_behind_the_end_is_no_difference(served: Served) -> None:
    shared = served(ShortWorker(5, 4), strict=True)
    stream = open_split(shared, 0, 0, 9, prefix_of(3))
    assert take_all(shared, stream) == 0
    assert (stream.total, shared.stats.mismatches) == (4, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "fails"),
    [([2, 4, 6, 8], False), ([6, 2, 2, 2, 2], True), ([3, 3, 3, 3, 3, 3], True)],
)
def test_only_a_replay_that_gets_further_than_all_before_is_progress(
    served: Served, steps: list[int], fails: bool
) -> None:
    """Each replay takes less than the timeout, all together take longer."""
    steps = list(steps)  # the worker removes the steps of each call
    shared = served(ReplayingWorker(steps, seconds=0.1), timeout=1.0)
    expected = list(steps)
    stream = open_stream(shared, start_row=3)
    if fails:
        with pytest.raises(UnavailableError, match=r"split 0 .*spec\.sidecar\.timeoutSeconds"):
            take_all(shared, stream)
        assert stream.advanced_at > float("-inf"), "replayed rows count"
    else:
        assert take_all(shared, stream) == ROWS - 3
        assert stream.replayed == 0
    calls = len(expected) - len(steps)
    assert stream.total_replayed == sum(expected[:calls])
    assert shared.stats.reconnects.total() == calls - fails


class TwiceReplayingWorker(Worker):
    """Replays three rows, sends two, replays two because it fell behind others, and sends all."""

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        nothing = np.zeros(0, np.uint64)
        yield blocks.encode(RowBlock(0, 0, (), nothing, replayed=3))
        yield block_of(request, 2)
        yield blocks.encode(RowBlock(0, 0, (), nothing, replayed=2))
        rest = worker_pb2.StreamRequest(start_row=request.start_row + 2, job=request.job)
        yield from super().Stream(rest, context)


def test_a_second_replay_of_one_call_counts_from_its_first_row(served: Served) -> None:
    shared = served(TwiceReplayingWorker(ROWS))
    stream = open_stream(shared, start_row=3)
    assert take_all(shared, stream) == ROWS - 3
    assert stream.total_replayed == 5


# Workers that leave.


def test_a_silent_stream_of_a_worker_that_has_left_is_opened_elsewhere(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_stream, "_SILENT_SECONDS", 0.2)
    silent = HangingWorker()
    left, stays = serve(silent), serve(Worker(ROWS))
    pool.update([info("left", left)])
    shared = context(pool)
    stream = open_stream(shared)
    assert silent.called.wait(SECONDS)
    pool.update([info("stays", stays)])  # only the dispatcher reports it, the stream stays open
    assert take_all(shared, stream) == ROWS
    assert shared.stats.reconnects == Counter(UnavailableError=1)
    silent.released.set()
    left.stop(0)
    stays.stop(0)


def test_a_worker_that_has_left_may_send_what_it_has(pool: WorkerPool) -> None:
    silent = HangingWorker()
    server = serve(silent)
    pool.update([info("left", server)])
    stream = open_stream(context(pool))
    assert silent.called.wait(SECONDS)
    pool.update([])
    assert pool.is_draining("left")
    assert not stream.next(1)
    assert not stream.failure, "it has been silent for less than five seconds"
    silent.released.set()
    server.stop(0)


def test_a_slow_stream_of_a_present_worker_stays_open(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_stream, "_SILENT_SECONDS", 0.2)
    slow = HangingWorker()
    shared = served(slow)
    stream = open_stream(shared)
    threading.Timer(0.8, slow.released.set).start()
    assert take_all(shared, stream) == ROWS
    assert not shared.stats.reconnects


def test_a_silent_stream_is_opened_elsewhere_if_the_host_of_its_worker_does_not_answer(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def host_answers(address: str) -> bool:
        asked.put(address)
        return answers.get(timeout=SECONDS)

    monkeypatch.setattr(worker_pool, "host_answers", host_answers)
    monkeypatch.setattr(split_stream, "_SUSPICIOUS_SECONDS", 0.1)
    silent = HangingWorker(rows=3)
    gone, stays = serve(silent), serve(Worker(ROWS))
    pool.update([info("gone", gone)])
    shared = context(pool)
    stream = open_stream(shared)
    assert silent.called.wait(SECONDS)
    pool.update([info("gone", gone), info("stays", stays)])
    answers.put(False)
    assert take_all(shared, stream) == ROWS
    assert shared.stats.reconnects == Counter(UnavailableError=1)
    assert asked.get(timeout=SECONDS) == info("gone", gone).address
    assert pool.lost_workers == 1
    keys = ((1, 2, 3, 4),)
    monkeypatch.setattr(worker_pool, "_RETRY_SECONDS", -1.0)
    chosen = [pool.acquire(keys, key) for key in keys[0]]
    assert {one[0] for one in chosen if one} == {"stays"}, "no new stream goes to that host"
    answers.put(True)
    eventually(lambda: not pool._members["gone"].unreachable)
    silent.released.set()
    gone.stop(0)
    stays.stop(0)


@pytest.mark.parametrize("draining", [False, True])
def test_a_worker_that_breaks_streams_without_an_error_is_lost_unless_it_drains(
    pool: WorkerPool, draining: bool
) -> None:
    hanging = HangingWorker(rows=3)
    first, second = serve(hanging), serve(Worker(ROWS))
    pool.update([info("first", first)])
    shared = context(pool)
    stream = open_stream(shared)
    assert hanging.called.wait(SECONDS)
    eventually(lambda: stream.received == 3)
    leaving = info("first", first)
    leaving.draining = draining
    pool.update([leaving, info("second", second)])
    first.stop(0)
    assert take_all(shared, stream) == ROWS
    assert pool.lost_workers == (0 if draining else 1)
    hanging.released.set()
    second.stop(0)


def test_a_worker_that_reports_an_error_is_not_lost(pool: WorkerPool, served: Served) -> None:
    shared = served(ScriptedWorker((3, LEAVING)))
    assert take_all(shared, open_stream(shared)) == ROWS
    assert not pool.lost_workers


def test_a_worker_that_sends_something_wrong_is_not_lost(pool: WorkerPool, served: Served) -> None:
    first = block_of(worker_pb2.StreamRequest(), 3)
    shared = served(InvalidWorker([first, b"\xff"]))
    assert take_all(shared, open_stream(shared)) == ROWS
    assert shared.stats.reconnects == Counter(UnavailableError=1)
    assert not pool.lost_workers


def test_the_problem_of_a_stream_is_its_last_failure(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(ScriptedWorker((0, LEAVING)))
    delayed: list[Callable[[], None]] = []
    monkeypatch.setattr(pool, "later", lambda seconds, action: delayed.append(action))
    pool.update([info("worker", server)])
    shared = context(pool)
    stream = open_stream(shared)
    eventually(lambda: delayed)
    assert "the worker is leaving" in stream.problem
    assert shared.stats.waiting == {"worker": "a worker"}
    delayed.pop()()
    assert take_all(shared, stream) == ROWS
    assert stream.problem == ""
    server.stop(0)


def test_an_assumed_start_in_an_empty_split_finds_its_end(served: Served) -> None:
    shared = served(ShortWorker(5, 0))
    stream = open_stream(shared, start_row=9)
    assert take_all(shared, stream) == 0
    assert stream.total == 0


# Backpressure.


class SingleRows(Worker):
    """Sends one row in each block."""

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        for row in range(request.start_row, ROWS):
            one = worker_pb2.StreamRequest(start_row=row)
            yield block_of(one, 1)
        nothing = np.zeros(0, np.uint8)
        end = RowBlock(ROWS, 0, (nothing,), nothing.view(np.uint64), last=True)
        yield blocks.encode(end)


def test_a_full_queue_stops_the_stream_until_rows_are_taken(pool: WorkerPool) -> None:
    server = serve(SingleRows(ROWS))
    pool.update([info("worker", server)])
    shared = replace(context(pool), queue_bytes=3 * ROW_COST)
    stream = open_stream(shared)
    eventually(lambda: stream.received == 3)
    for row in range(ROWS):
        eventually(lambda row=row: stream.received > row)
        time.sleep(0.02)  # so that a fourth row could arrive
        with shared.lock:
            assert stream.received <= row + 3
            assert [block.rows for block in stream.next(1)] == [1]
    assert take_all(shared, stream) == 0
    server.stop(0)


@given(st.integers(1, 8 * ROW_COST), st.booleans(), st.data())
def test_the_queue_is_bounded_and_the_worker_may_send_when_it_is_empty(
    queue_bytes: int, changes: bool, data: st.DataObject
) -> None:
    workers, shared = given_context(queue_bytes)
    stream = open_stream(shared)
    for rows in data.draw(st.lists(st.integers(-90, 40), max_size=60)):
        if changes:  # other splits were opened
            shared.queue_bytes = data.draw(st.integers(1, queue_bytes))
        (call,) = workers.calls
        if rows > 0 and call.has_credit:
            call.send(rows)
            assert stream._queued_bytes < queue_bytes + cost_of(rows)
        with shared.lock:
            stream.next(max(0, -rows))
            assert call.has_credit or stream._queue, "nothing is queued, and nothing may come"
            assert stream.is_full == (not call.has_credit)


@pytest.mark.parametrize(("most", "queue"), [(0, 4), (8, 8), (99, 20)])
def test_the_queue_has_the_rows_of_a_step_when_steps_take_them(most: int, queue: int) -> None:
    """Otherwise, one partition after the other would be computed for a step."""
    workers, shared = given_context(queue_bytes=4 * ROW_COST)
    shared.stats.rows, shared.stats.bytes = 1 << 40, ROW_COST << 40
    shared.step_rows, shared.most_head_bytes = 20, most * ROW_COST
    stream = open_stream(shared)
    (call,) = workers.calls
    sent = 0
    while call.has_credit:
        call.send(1)
        sent += 1
    assert sent == 4, "no step takes rows yet"
    with shared.lock:
        stream.grant()
    while call.has_credit:
        call.send(1)
        sent += 1
    assert sent == queue


@given(st.integers(1, 8 * ROW_COST), st.data())
def test_streams_that_are_opened_again_stop_at_twice_the_size_of_the_queue(
    queue_bytes: int, data: st.DataObject
) -> None:
    workers, shared = given_context(queue_bytes)
    stream = open_stream(shared)
    for rows in data.draw(st.lists(st.integers(-90, 40), max_size=60)):
        call = workers.calls[-1]
        if rows == 0:
            workers.break_stream()
        elif rows > 0 and call.has_credit:
            call.send(rows)
            assert stream._queued_bytes < 2 * queue_bytes + cost_of(rows)
        with shared.lock:
            stream.next(max(0, -rows))
            assert workers.calls[-1].has_credit or stream._queue


def test_a_stream_that_is_opened_again_with_a_full_queue_gets_one_block() -> None:
    workers, shared = given_context(queue_bytes=3 * ROW_COST)
    stream = open_stream(shared)
    for expected in (3, 1, 1, 1, 0, 0):
        call, sent = workers.calls[-1], 0
        while call.has_credit:
            call.send(1)
            sent += 1
        assert sent == expected
        assert stream.is_full
        workers.break_stream()
    with shared.lock:
        assert sum(block.rows for block in stream.next(100)) == 6
    assert workers.calls[-1].has_credit


@pytest.mark.parametrize(("queue", "block"), [(1, 1), (4, 2), (16, 4)])
def test_a_stream_requests_blocks_of_half_a_queue(queue: int, block: int) -> None:
    workers, shared = given_context(queue_bytes=queue << 20)
    open_stream(shared)
    (call,) = workers.calls
    assert call.request.block_bytes == block << 20


def test_few_messages_grant_credit() -> None:
    """One for each half of the queue, however few rows are taken at a time."""
    workers, shared = given_context(queue_bytes=100 * ROW_COST)
    stream = open_stream(shared)
    (call,) = workers.calls
    for _ in range(1000):
        while call.has_credit:
            call.send(1)
        with shared.lock:
            stream.next(1)
    assert 18 <= len(call.granted) <= 20


def test_the_time_in_which_the_queue_is_full_is_no_silence_of_the_worker() -> None:
    workers, shared = given_context(queue_bytes=8)
    stream = open_stream(shared)
    (call,) = workers.calls
    call.send(1)
    workers.draining = True
    with shared.lock:
        stream._active_at = 0.0  # long ago
        assert [block.rows for block in stream.next(1)] == [1]
        assert stream.next(1) == []
        assert not call.closed
        stream._active_at = 0.0
        assert stream.next(1) == []
        assert call.closed


def test_the_first_row_wakes_the_reader(pool: WorkerPool) -> None:
    worker = HangingWorker(rows=3)
    server = serve(worker)
    shared = context(pool)
    stream = open_stream(shared)
    with shared.lock:
        began = time.monotonic()
        pool.update([info("worker", server)])  # the stream is opened once the lock is free
        shared.arrived.wait(3 * SECONDS)
        assert time.monotonic() - began < 2 * SECONDS
        assert stream.received == 3
    worker.released.set()
    server.stop(0)


# Closing.


def test_a_closed_stream_ends_its_call_once() -> None:
    workers, shared = given_context()
    stream = open_stream(shared)
    (call,) = workers.calls
    with shared.lock:
        stream.close()
        stream.close()
    assert (call.closed, workers.released) == (1, [False])


def test_a_closed_stream_drops_its_rows_and_ignores_what_comes_late() -> None:
    workers, shared = given_context()
    stream = open_stream(shared)
    (call,) = workers.calls
    call.send(2)
    with shared.lock:
        stream.close()
        assert stream.next(1) == []
    call.send(3)
    call.receiver.fail(call, LEAVING, True)
    assert (stream.received, shared.stats.rows, stream.next(1)) == (2, 2, [])
    assert not workers.delayed


def test_blocks_of_an_earlier_attempt_are_ignored() -> None:
    workers, shared = given_context()
    stream = open_stream(shared)
    workers.break_stream()
    earlier, call = workers.calls
    earlier.send(3)
    earlier.receiver.fail(earlier, LEAVING, True)
    assert (stream.received, call.closed, workers.delayed) == (0, 0, [])
    call.send(2)
    assert stream.received == 2


def test_a_stream_that_has_ended_releases_its_worker() -> None:
    workers, shared = given_context()
    stream = open_stream(shared)
    (call,) = workers.calls
    call.send(2, last=True)
    assert (call.closed, workers.released, stream.total) == (1, [False], 2)


def test_a_closed_stream_is_not_opened_again() -> None:
    workers, shared = given_context()
    stream = open_stream(shared)
    (call,) = workers.calls
    call.receiver.fail(call, LEAVING, True)
    assert shared.stats.waiting == {"worker": "a worker"}
    with shared.lock:
        stream.close()
    assert not shared.stats.waiting
    workers.delayed.pop()()
    assert workers.calls == [call]


def test_a_closed_stream_stops_waiting_for_a_worker(pool: WorkerPool) -> None:
    shared = context(pool)
    stream = open_stream(shared)
    assert "no worker is available" in stream.problem
    assert shared.stats.waiting
    with shared.lock:
        stream.close()
    assert not shared.stats.waiting
    worker = ScriptedWorker()
    server = serve(worker)
    pool.update([info("worker", server)])
    assert take_all(shared, open_stream(shared)) == ROWS
    assert len(worker.requests) == 1
    server.stop(0)


def test_an_error_while_a_stream_is_opened_again_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers, shared = given_context()
    stream = open_stream(shared)
    monkeypatch.setattr(workers, "open", lambda *args: 1 // 0)
    workers.break_stream()
    with shared.lock, pytest.raises(DistributedInputError, match="failed: ZeroDivisionError"):
        stream.next(1)


def open_calls() -> int:
    """Return the number of calls whose end gRPC has not reported."""
    gc.collect()
    return sum(type(o).__name__ == "ReceiveStatusOnClientOperation" for o in gc.get_objects())


def test_grpc_keeps_nothing_of_streams_that_have_ended(served: Served) -> None:
    shared = served(Worker(ROWS))
    before = open_calls()
    for _ in range(20):
        assert take_all(shared, open_stream(shared)) == ROWS
    deadline = time.monotonic() + SECONDS
    while open_calls() > before + 5:  # the last ones may be about to end
        assert time.monotonic() < deadline, "gRPC keeps calls"
        time.sleep(0.05)


def test_grpc_keeps_nothing_of_streams_that_were_closed(pool: WorkerPool, served: Served) -> None:
    hanging = HangingWorker(rows=3)
    shared = served(hanging)
    before = open_calls()
    streams = [open_stream(shared) for _ in range(5)]
    eventually(lambda: all(stream.received == 3 for stream in streams))
    with shared.lock:
        for stream in streams:
            stream.close()
    connections = sum(isinstance(one.link, WorkerConnection) for one in pool._members.values())
    eventually(lambda: open_calls() <= before + connections)
    hanging.released.set()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Cycles of references stay."""
    gc.disable()
    yield
    gc.enable()


def test_a_stream_that_broke_leaves_no_cycle(served: Served, no_collector: None) -> None:
    shared = served(ScriptedWorker((3, LEAVING)))
    streams = [open_stream(shared)]
    assert take_all(shared, streams[0]) == ROWS
    freed = weakref.ref(streams.pop())
    eventually(lambda: freed() is None)


def test_a_stream_that_was_closed_leaves_no_cycle(served: Served, no_collector: None) -> None:
    hanging = HangingWorker(rows=3)
    shared = served(hanging)
    streams = [open_stream(shared)]
    eventually(lambda: streams[0].received == 3)
    with shared.lock:
        streams[0].close()
    freed = weakref.ref(streams.pop())
    eventually(lambda: freed() is None)
    hanging.released.set()
