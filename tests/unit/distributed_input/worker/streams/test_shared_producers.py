"""Streams that share producers: each gets its own rows, whichever stream produces them.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.compute.compute_pool import ComputePool
from distributed_input.worker.compute.task_queue import ComputeTask
from distributed_input.worker.streams import dataset_usage, wait_budget
from distributed_input.worker.streams import shared_producers as module
from distributed_input.worker.streams.block_producer import BlockProducer
from distributed_input.worker.streams.running_split import RunningSplit
from distributed_input.worker.streams.shared_producers import SharedProducers
from tests.unit.distributed_input.worker.streams.blockcases import (
    ROW,
    block_of,
    end_of,
    prefix_of,
    progress_of,
    rows_in,
    state_of,
)
from tests.unit.distributed_input.worker.streams.pulled_stream import (
    InlinePool,
    PulledStream,
    inline_pool,
)

ROWS = 40
MOST_COST = block_of(0, 9).cost


class FakeSplits:
    """Starts splits of the rows 0 to 39, whose blocks are cut at other rows each time.

    Attributes:
        produced: number of rows produced, without replayed rows.
        started: number of splits started.
        reports_progress: whether a replay reports its progress.
        state: saved state to send first.
    """

    reports_progress = False
    state = b""

    def __init__(self, cuts: list[int]) -> None:
        self._cuts = cuts
        self.produced = self.started = 0

    def start(self, request: worker_pb2.StreamRequest, counters: StreamCounters) -> RunningSplit:
        self.started += 1
        cut = self._cuts[self.started % len(self._cuts)]
        return RunningSplit(request, functools.partial(self._blocks, request, cut))

    def _blocks(
        self, request: worker_pb2.StreamRequest, cut: int
    ) -> Generator[RowBlock, None, None]:
        row = min(request.start_row, ROWS)
        known = prefix_of(request.prefix_rows).digest
        header = {
            "prefix_differs": request.check_prefix and known != request.prefix_digest,
            "node": "node",
            "prefix_digest": prefix_of(row).digest,
        }
        if self.state:
            yield state_of(self.state)
        for replayed in range(15, row if self.reports_progress else 0, 15):
            yield progress_of(replayed)
        while row < ROWS:
            rows = min(cut, ROWS - row)
            self.produced += rows
            yield block_of(row, rows, **header)
            row, header = row + rows, {}
        yield end_of(row, **header)


def request(job: str = "a", start: int = 0, check: int | None = None) -> worker_pb2.StreamRequest:
    stream = worker_pb2.StreamRequest(
        job=types_pb2.Job(name=job, dataset_id="d", row_spec=ROW.to_json()), start_row=start
    )
    if check is not None:
        stream.prefix_rows, stream.check_prefix = check, True
        stream.prefix_digest = prefix_of(check).digest
    return stream


def producers_of(
    splits: FakeSplits,
    limit: int = 1 << 20,
    is_shared: bool = True,
    pool: ComputePool | None = None,
) -> SharedProducers:
    """Return the shared producers. With `is_shared`, two jobs have just read the dataset.

    Args:
        splits: the splits.
        limit: maximum bytes of all windows.
        is_shared: whether rows are kept for other jobs.
        pool: computes blocks; None: each is computed in the thread that requests it.
    """
    producers = SharedProducers(splits.start, pool or inline_pool(), limit)
    for job in ("one", "other") if is_shared else ():
        other_split = request(job, start=ROWS)
        other_split.split = 1
        for _ in PulledStream(producers, other_split):
            pass
    splits.started = splits.produced = 0
    return producers


def read(producers: SharedProducers, stream: worker_pb2.StreamRequest) -> list[RowBlock]:
    return list(PulledStream(producers, stream))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable waiting: the streams of these tests run in one thread, so waiting cannot end."""
    monkeypatch.setattr(wait_budget, "MAX_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("requested", "limit", "given"), [(0, 64, 0), (4, 64, 4), (4, 10, 4), (4, 4, 2), (9, 64, 5)]
)
def test_a_block_leaves_room_for_another_one_in_the_window(
    requested: int, limit: int, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window of a producer has at most 10 bytes here."""
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(module, "_WINDOW_BYTES", 10)
    found: list[int] = []

    def start(stream: worker_pb2.StreamRequest, _counters: StreamCounters) -> Any:
        found.append(stream.block_bytes)
        return FakeSplits([5]).start(stream, _counters)

    producers = SharedProducers(start, inline_pool(), limit)
    one = request()
    one.block_bytes = requested
    read(producers, one)
    assert found == [given]


streams = st.lists(st.tuples(st.integers(0, ROWS + 5), st.booleans()), min_size=1, max_size=6)


@given(
    streams,
    st.lists(st.integers(0, 5), max_size=200),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 12),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_every_stream_gets_its_rows_once_and_in_order(
    starts: list[tuple[int, bool]],
    schedule: list[int],
    cuts: list[int],
    window: int,
    is_shared: bool,
) -> None:
    splits = FakeSplits(cuts)
    splits.reports_progress = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wait_budget, "MAX_SECONDS", 0.0)
        patch.setattr(dataset_usage, "_START_SECONDS", 0.0)
        patch.setattr(module, "BLOCK_BYTES", 1)
        patch.setattr(module, "_WINDOW_BYTES", window * 600)
        producers = producers_of(splits, limit=window * 1000, is_shared=is_shared)
        counters = StreamCounters()
        running: dict[int, PulledStream] = {}
        received: dict[int, list[RowBlock]] = {i: [] for i in range(len(starts))}
        for i in [*schedule, *(j for _ in range(ROWS + 6) for j in range(len(starts)))]:
            if i >= len(starts):
                continue
            if i not in running:
                start, check = starts[i]
                stream = request(f"job-{i}", start, start if check and start <= ROWS else None)
                running[i] = PulledStream(producers, stream, counters)
            block = next(running[i], None)
            if block is not None and block.replayed:
                assert block.replayed <= starts[i][0] + len(rows_in(received[i]))
            elif block is not None:
                received[i].append(block)
            most = max(window * 1000, len(running) * window * 600) + len(running) * MOST_COST
            assert producers.nbytes <= most
        for i, (start, _) in enumerate(starts):
            found = received[i]
            assert rows_in(found) == list(range(start, ROWS))
            assert found[-1].last
            assert not any(block.last for block in found[:-1])
            assert not any(block.prefix_differs for block in found)
            assert found[0].first_row == min(start, ROWS)
            prefix = prefix_of(min(start, ROWS))
            assert found[0].prefix_digest == prefix.digest
            for block in found:
                prefix = prefix.extend(block.digests)
            assert prefix == prefix_of(ROWS)


def test_a_state_is_sent_once_to_a_stream_that_produced_it() -> None:
    splits = FakeSplits([5])
    splits.state = b"state"
    producers = producers_of(splits)
    found = {}
    for job in "ab":
        sent = read(producers, request(job))
        found[job] = [block.resume_token for block in sent if block.resume_token]
        assert rows_in([block for block in sent if block.rows]) == list(range(ROWS))
    assert found == {"a": [b"state"], "b": []}


def test_rows_of_jobs_at_the_same_speed_are_produced_once() -> None:
    splits = FakeSplits([7])
    producers, counters = producers_of(splits), StreamCounters()
    running = [PulledStream(producers, request(f"job-{i}"), counters) for i in range(8)]
    for _ in range(-(-ROWS // 7) + 1):
        for stream in running:
            next(stream)
    assert (splits.produced, splits.started) == (ROWS, 1)
    assert counters.rows == 8 * ROWS
    assert counters.shared_rows == 7 * ROWS
    assert counters.bytes == 8 * 8 * ROWS


def test_a_stream_that_joins_within_a_block_counts_only_what_it_gets() -> None:
    splits = FakeSplits([7])
    producers = producers_of(splits)
    leader = PulledStream(producers, request("leader"))
    next(leader)
    counters = StreamCounters()
    joined = PulledStream(producers, request("joined", start=3), counters)
    assert next(joined).rows == 4
    assert splits.started == 1
    assert (counters.rows, counters.bytes) == (4, 8 * 4)


def test_nothing_is_kept_for_a_single_job_after_the_first_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataset_usage, "_START_SECONDS", 0.0)
    producers = producers_of(FakeSplits([7]), is_shared=False)
    for _ in PulledStream(producers, request()):
        assert producers.nbytes == 0


def test_rows_of_a_new_dataset_are_kept_for_jobs_that_start_together() -> None:
    splits = FakeSplits([7])
    producers = producers_of(splits, is_shared=False)
    first = PulledStream(producers, request("a"))
    for _ in range(4):
        next(first)
    assert rows_in(read(producers, request("b"))) == list(range(ROWS))
    assert splits.started == 1


def test_a_job_that_starts_a_little_later_gets_the_rows_that_were_kept() -> None:
    splits = FakeSplits([7])
    producers = producers_of(splits)
    assert rows_in(read(producers, request("a"))) == list(range(ROWS))
    assert rows_in(read(producers, request("b"))) == list(range(ROWS))
    assert splits.started == 1


def test_a_stream_behind_the_window_gets_a_producer_that_others_may_join(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    splits = FakeSplits([2])
    producers = producers_of(splits, limit=1)
    slow = [PulledStream(producers, request(f"slow-{i}")) for i in range(2)]
    received = [[next(stream)] for stream in slow]
    read(producers, request("quick"))
    assert splits.produced == ROWS
    for _ in range(ROWS // 2):
        for stream, found in zip(slow, received, strict=True):
            found.append(next(stream))
    assert [rows_in(found) for found in received] == [list(range(ROWS))] * 2
    assert splits.started == 2
    for stream in slow:
        stream.close()
    assert not any(one.streams for one in running_in(producers))


def test_a_stream_that_reaches_an_older_producer_changes_to_it() -> None:
    splits = FakeSplits([4])
    producers = producers_of(splits)
    quick = PulledStream(producers, request("quick", start=20))
    first = next(quick)
    late = PulledStream(producers, request("late"))
    received = [next(late) for _ in range(5)]  # rows 0 to 19
    assert splits.started == 2
    produced = splits.produced
    rest = [first, *quick]
    received += list(late)
    assert rows_in(rest) == list(range(20, ROWS))
    assert rows_in(received) == list(range(ROWS))
    assert splits.produced == produced + (ROWS - 24)


def first_block(producers: SharedProducers, stream: worker_pb2.StreamRequest) -> RowBlock:
    return next(PulledStream(producers, stream))


def test_only_the_stream_with_another_prefix_gets_the_difference() -> None:
    producers = producers_of(FakeSplits([8]))
    leader = PulledStream(producers, request("a"))
    assert not next(leader).prefix_differs
    second = PulledStream(producers, request("b"))
    next(second)
    wrong = request("c", start=8, check=8)
    wrong.prefix_digest += 1
    assert first_block(producers, wrong).prefix_differs
    assert not first_block(producers, request("d", start=8, check=8)).prefix_differs


def test_a_producer_with_a_difference_is_not_shared_and_not_kept() -> None:
    splits = FakeSplits([8])
    producers = producers_of(splits)
    wrong = request("wrong", start=8, check=8)
    wrong.prefix_digest += 1
    leader = PulledStream(producers, wrong)
    assert next(leader).prefix_differs
    first_block(producers, request("other", start=16))
    assert splits.started == 2
    assert sum(1 for _ in leader) == (ROWS - 16) // 8 + 1
    assert not any(one.prefix_differs for one in running_in(producers))


def test_a_check_of_rows_that_a_producer_did_not_produce_starts_another() -> None:
    splits = FakeSplits([8])
    producers = producers_of(splits)
    stream = PulledStream(producers, request("a", start=16))
    next(stream)
    first = first_block(producers, request("b", start=16, check=8))
    assert splits.started == 2
    assert not first.prefix_differs


def test_what_is_kept_of_ended_splits_is_bounded() -> None:
    limit = 4 * (ROWS // 7 + 1) * MOST_COST
    producers = producers_of(FakeSplits([7]), limit=limit)
    for split in range(2, 12):
        stream = request()
        stream.split = split
        assert rows_in(read(producers, stream))
        assert 0 < producers.nbytes <= limit


def test_nothing_is_kept_of_a_split_that_was_not_read_to_its_end() -> None:
    producers = producers_of(FakeSplits([7]))
    kept = len(running_in(producers))
    stream = PulledStream(producers, request())
    next(stream)
    stream.close()
    assert len(running_in(producers)) == kept


class GatedSplits(FakeSplits):
    """From the second split on, blocks are produced after `gate` is set.

    Args:
        cuts: rows of the blocks.
        change: added to the digest of the rows before.
    """

    def __init__(self, cuts: list[int], change: int = 0) -> None:
        super().__init__(cuts)
        self.gate, self.begun = threading.Event(), threading.Event()
        self._change = change

    def _blocks(
        self, request: worker_pb2.StreamRequest, cut: int
    ) -> Generator[RowBlock, None, None]:
        gated = self.started > 1
        for block in super()._blocks(request, cut):
            if gated:
                self.begun.set()
                assert self.gate.wait(20)
                block = replace(block, prefix_digest=block.prefix_digest + self._change)
            yield block


def test_a_difference_of_the_first_stream_is_not_one_of_a_stream_that_joined_early() -> None:
    splits = GatedSplits([8])
    producers = producers_of(splits, pool=ComputePool(1))
    read(producers, request("first", start=ROWS))
    wrong = request("wrong", start=8, check=8)
    wrong.prefix_digest += 1
    leader = PulledStream(producers, wrong)
    leader.begin()
    assert splits.begun.wait(20)
    joined = PulledStream(producers, request("right", start=8, check=8))
    joined.begin()
    assert [len(one.streams) for one in busy_in(producers)] == [2]
    splits.gate.set()
    assert next(leader).prefix_differs
    assert not next(joined).prefix_differs


def test_a_change_to_a_producer_with_other_rows_before_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    splits = GatedSplits([2], change=1)
    producers = producers_of(splits, limit=1, pool=ComputePool(1))
    slow = PulledStream(producers, request("slow"))
    next(slow)  # rows 0 and 1
    read(producers, request("quick"))  # evicts row 2
    unchecked = PulledStream(producers, request("other", start=2))
    unchecked.begin()
    assert splits.begun.wait(20)
    slow.begin()
    assert [len(one.streams) for one in busy_in(producers)] == [2]
    splits.gate.set()
    assert rows_in([next(unchecked)]) == [2, 3]
    with pytest.raises(UnavailableError, match="differ"):
        next(slow)


def running_in(producers: SharedProducers) -> list[BlockProducer]:
    return [one for group in list(producers._producers.values()) for one in group]


def test_an_error_ends_all_streams_of_a_producer_and_the_next_stream_starts_another() -> None:
    class BrokenSplits(FakeSplits):
        def _blocks(
            self, request: worker_pb2.StreamRequest, cut: int
        ) -> Generator[RowBlock, None, None]:
            for count, block in enumerate(super()._blocks(request, cut)):
                if self.started == 1 and count == 2:
                    raise OSError("the disk is gone")
                yield block

    producers = producers_of(BrokenSplits([4]))
    pair = [PulledStream(producers, request(f"job-{i}")) for i in range(2)]
    next(pair[0]), next(pair[0]), next(pair[1])
    with pytest.raises(OSError, match="disk"):
        next(pair[0])
    # A new stream does not join the failed producer, which still has a stream.
    assert rows_in(read(producers, request())) == list(range(ROWS))
    assert rows_in([next(pair[1])]) == [4, 5, 6, 7]
    with pytest.raises(OSError, match="disk"):
        next(pair[1])


def test_a_fast_stream_waits_for_a_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_budget, "MAX_SECONDS", 5.0)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    splits = FakeSplits([2])
    producers = producers_of(splits, limit=1, pool=ComputePool(1))
    slow = PulledStream(producers, request("slow"))
    next(slow)
    fast = PulledStream(producers, request("fast"))
    next(fast)
    finished = threading.Event()

    def run() -> None:
        for _ in fast:
            pass
        finished.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert not finished.wait(0.3)  # the slow stream does not move
    assert [one.waiting_since is not None for one in busy_in(producers)] == [True]
    assert sum(1 for _ in slow) == ROWS // 2
    assert finished.wait(10)
    thread.join()
    assert splits.started == 1
    assert splits.produced == ROWS
    assert not any(one.waiting_since for one in running_in(producers))


def test_a_fast_stream_does_not_wait_longer_than_its_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wait_budget, "MAX_SECONDS", 0.2)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    producers = producers_of(FakeSplits([2]), limit=1)
    slow = PulledStream(producers, request("slow"))
    next(slow)
    assert sum(1 for _ in PulledStream(producers, request("fast"))) == ROWS // 2 + 1


def test_the_limit_of_a_window_is_the_share_of_one_producer_with_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 10)
    monkeypatch.setattr(module, "_WINDOW_BYTES", 900)
    producers = producers_of(FakeSplits([7]), limit=1200)
    limits = [producers._window_limit()]
    running: list[Any] = []
    for split in (2, 3, 4, 2):  # the last stream joins the first
        stream = request(f"job-{len(running)}")
        stream.split = split
        running.append(PulledStream(producers, stream))
        next(running[-1])
        limits.append(producers._window_limit())
    while running:
        running.pop().close()
        limits.append(producers._window_limit())
    assert limits == [900, 900, 600, 400, 400, 400, 600, 900, 900]


def test_replayed_rows_include_those_of_producers_that_were_removed() -> None:
    class CountedSplits(FakeSplits):
        def start(
            self, request: worker_pb2.StreamRequest, counters: StreamCounters
        ) -> RunningSplit:
            counters.replayed_rows = 10**self.started
            return super().start(request, counters)

    producers = producers_of(CountedSplits([7]), is_shared=False)
    first = PulledStream(producers, request("a"))
    next(first)
    assert producers.replayed_rows == 1
    first.close()
    assert not running_in(producers)
    read(producers, request("b"))
    assert producers.replayed_rows == 11


def test_a_split_that_has_ended_is_closed_while_its_blocks_are_kept() -> None:
    closed = []

    class ClosedSplits(FakeSplits):
        def _blocks(
            self, request: worker_pb2.StreamRequest, cut: int
        ) -> Generator[RowBlock, None, None]:
            try:
                yield from super()._blocks(request, cut)
            finally:
                closed.append(request.split)

    producers = producers_of(ClosedSplits([7]))
    closed.clear()
    read(producers, request())
    assert closed == [0]
    assert any(one.key[2] == 0 for one in running_in(producers))


class SteppedPool(InlinePool):
    """Runs a task each time a stream has nothing."""

    def __init__(self) -> None:
        self.tasks: deque[ComputeTask] = deque()

    def submit(self, tasks: Iterable[ComputeTask]) -> None:
        self.tasks.extend(tasks)

    def next_of(self, stream: PulledStream) -> RowBlock:
        while not (found := stream.stream.next(1)):
            self.tasks.extend(self.tasks.popleft().run())
        return found[0]


def test_a_stream_that_changes_producers_gets_the_progress_of_the_new_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    splits, pool = FakeSplits([2]), SteppedPool()
    splits.reports_progress = True
    producers = SharedProducers(splits.start, cast(Any, pool), 1)
    slow, quick = (PulledStream(producers, request(name, start=20)) for name in ("slow", "quick"))
    assert [pool.next_of(slow).replayed for _ in range(2)] == [15, 0]
    while not pool.next_of(quick).last:  # evicts row 22
        pass
    assert [pool.next_of(slow).replayed for _ in range(2)] == [15, 0]
    assert splits.started == 2


def test_nothing_is_kept_once_all_jobs_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_usage, "_START_SECONDS", 0.0)
    monkeypatch.setattr(dataset_usage, "_LINGER_SECONDS", -1.0)
    producers = producers_of(FakeSplits([7]), is_shared=False)
    first = PulledStream(producers, request("a"))
    next(first)
    read(producers, request("b"))
    assert producers.nbytes, "job a reads as well"
    first.close()
    assert (producers.nbytes, running_in(producers)) == (0, [])


def test_a_kept_producer_that_a_stream_joins_is_not_removed() -> None:
    producers = producers_of(FakeSplits([7]))
    read(producers, request("a"))
    kept = len(producers._idle)
    stream = PulledStream(producers, request("b"))
    next(stream)
    assert len(producers._idle) == kept - 1
    stream.close()
    assert len(producers._idle) == kept


@pytest.mark.parametrize("others", [0, 1])
def test_a_stream_that_cannot_change_producers_leaves_once(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    class OnceSplits(FakeSplits):
        def _blocks(
            self, request: worker_pb2.StreamRequest, cut: int
        ) -> Generator[RowBlock, None, None]:
            if request.start_row == 2:
                raise OSError("the disk is gone")
            yield from super()._blocks(request, cut)

    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    producers = producers_of(OnceSplits([2]), limit=1)
    slow = PulledStream(producers, request("slow"))
    next(slow)
    quick = PulledStream(producers, request("quick"))
    for _ in range(4 if others else ROWS // 2 + 1):
        next(quick)
    if not others:
        assert next(quick, None) is None
    with pytest.raises(OSError, match="disk"):
        next(slow)
    assert len(producers._busy) == others
    assert sum(1 for _ in quick) == (ROWS // 2 + 1 - 4) * others
    assert len(producers._busy) == 0


def test_a_stream_behind_the_end_counts_no_rows() -> None:
    counters = StreamCounters()
    producers = producers_of(FakeSplits([7]))
    assert sum(1 for _ in PulledStream(producers, request(start=ROWS + 5), counters)) == 1
    assert counters.rows == 0


def test_a_producer_has_a_task_while_it_produces() -> None:
    """So no second task produces the same block."""
    marked: list[bool] = []

    class ObservedSplits(FakeSplits):
        def _blocks(
            self, request: worker_pb2.StreamRequest, cut: int
        ) -> Generator[RowBlock, None, None]:
            for block in super()._blocks(request, cut):
                marked.extend(one.task is not None for one in busy_in(producers))
                yield block

    producers = producers_of(ObservedSplits([20]), is_shared=False)
    for _ in PulledStream(producers, request()):
        assert not any(one.task is not None for one in busy_in(producers))
    assert marked == [True] * 3


def busy_in(producers: SharedProducers) -> list[BlockProducer]:
    return [one for one in running_in(producers) if one.streams]


def test_a_split_that_another_job_waits_for_gets_its_permit_in_that_jobs_turn() -> None:
    produced: list[int] = []

    class RecordingSplits(FakeSplits):
        def _blocks(
            self, request: worker_pb2.StreamRequest, cut: int
        ) -> Generator[RowBlock, None, None]:
            produced.append(request.split)
            yield from super()._blocks(request, cut)

    pool, release = ComputePool(1), threading.Event()
    pool.resize(1, may_lend=False)
    producers = producers_of(RecordingSplits([ROWS]), is_shared=False, pool=pool)
    pool.submit([waiting_task(release)])
    running = []
    for waiting, ordinal in enumerate((1, 2, 9), 1):
        stream = request("behind")
        stream.split = stream.ordinal = ordinal
        running.append(PulledStream(producers, stream))
        running[-1].begin()
        assert pool.waiting == waiting
    stream = request("ahead")
    stream.split = 9
    running.append(PulledStream(producers, stream))
    running[-1].begin()
    (last,) = [one for one in busy_in(producers) if len(one.streams) == 2]
    assert last.task is not None
    assert len(last.task.orders) == 2
    release.set()
    assert [rows_in([next(one)]) for one in running] == [list(range(ROWS))] * 4
    assert produced == [1, 9, 2]


def waiting_task(event: threading.Event) -> ComputeTask:
    """Return a task that ends when an event is set."""

    def run() -> list[ComputeTask]:
        event.wait(20)
        return []

    return ComputeTask(run)


class FailingSplits(FakeSplits):
    """Fails behind the last row."""

    def _blocks(
        self, request: worker_pb2.StreamRequest, cut: int
    ) -> Generator[RowBlock, None, None]:
        for block in super()._blocks(request, cut):
            if block.last:
                raise UnavailableError("the disk is gone")
            yield block


def test_a_stream_that_fell_behind_gets_its_rows_before_the_error_behind_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    producers = SharedProducers(FailingSplits([1]).start, inline_pool(), 1)
    slow, quick = (
        PulledStream(producers, request("slow")),
        PulledStream(producers, request("quick")),
    )
    found = [next(slow)]
    for stream, blocks in ((quick, []), (slow, found)):
        with pytest.raises(UnavailableError, match="the disk is gone"):
            blocks.extend(stream)
    assert rows_in([block for block in found if block.rows]) == list(range(ROWS))
