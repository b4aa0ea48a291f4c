"""The partitions of an epoch: waits for rows and facts, and the number of open splits.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link.errors import Cancelled
from distributed_input.order.share import share_of
from distributed_input.rows.blocks import RowBlock
from distributed_input.sidecar.steps import epoch_reader
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.streams import read_ahead
from distributed_input.sidecar.streams.partition_reader import PartitionPosition, PartitionReader
from distributed_input.sidecar.streams.read_ahead import ReadAhead, ReadingTime
from distributed_input.sidecar.streams.stream_context import SourceStats, StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.dispatcher.builders import fact
from tests.unit.distributed_input.sidecar import system
from tests.unit.distributed_input.sidecar.steps.clocks import Clock
from tests.unit.distributed_input.sidecar.steps.trainers import NoTrainer, WaitingTrainer
from tests.unit.distributed_input.sidecar.streams import streaming
from tests.unit.distributed_input.sidecar.system import Worker, eventually, running

PARTITIONS, SPLITS = 2, 4


class HeldWorker(Worker):
    """Records the splits that are requested, and sends no rows until `released`."""

    requested: list[int]
    released: threading.Event

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        self.requested.append(request.split)
        assert self.released.wait(20)
        yield from super().Stream(request, _context)


def test_splits_are_read_ahead_only_after_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldWorker, "requested", [], raising=False)
    monkeypatch.setattr(HeldWorker, "released", threading.Event(), raising=False)
    monkeypatch.setattr(system, "Worker", HeldWorker)
    with running(tmp_path) as parts:
        parts.add_sidecar()
        reader = parts.connect()
        reader.begin()
        eventually(lambda: len(HeldWorker.requested) == PARTITIONS)
        assert not threading.Event().wait(0.3)  # enough for a split opened at once to be requested
        assert len(HeldWorker.requested) == PARTITIONS
        HeldWorker.released.set()
        batch = next(reader.units())
        assert batch.rows == system.BATCH
        eventually(lambda: len(set(HeldWorker.requested)) == SPLITS)
        reader.close()


class SlowWorker(Worker):
    """Takes a while for each block. Records the splits that are requested and those that ended."""

    requested: set[int]
    ended: set[int]
    most: list[int]
    """Number of splits that were open when each one was requested."""

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        self.requested.add(request.split)
        self.most.append(len(self.requested - self.ended))
        if self.most[-1] > 2 * PARTITIONS:
            assert self.ended, "more splits were opened before one had ended"
        for block in super().Stream(request, _context):
            threading.Event().wait(0.02)
            yield block
        self.ended.add(request.split)


def test_steps_that_wait_open_as_many_splits_as_the_workers_can_compute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SlowWorker, "requested", set(), raising=False)
    monkeypatch.setattr(SlowWorker, "ended", set(), raising=False)
    monkeypatch.setattr(SlowWorker, "most", [], raising=False)
    monkeypatch.setattr(system, "Worker", SlowWorker)
    monkeypatch.setattr(epoch_reader, "_ADAPT_SECONDS", 0.0)
    for name in ("_START_SECONDS", "_MEASURE_SECONDS"):
        monkeypatch.setattr(read_ahead, name, 1e-9)
    monkeypatch.setattr(read_ahead, "_helped", lambda *_: True)
    splits, capacity = 32, 6
    with running(tmp_path, rows=splits * 200) as parts:
        own = parts.add_sidecar(numSplits=splits)
        reader = parts.connect()
        units = reader.units(reader.begin())
        while len(SlowWorker.requested) < 2 * PARTITIONS:  # the workers' capacity is not known
            next(units)
        (info,) = parts.state.workers.live(parts.clock.now())
        info.capacity = capacity
        parts.state.worker_beat(parts.clock.now(), heartbeat_of(info))
        while max(SlowWorker.most) < 2 * capacity:
            next(units)
        assert own.link.pool.capacity == capacity
        reader.close()
    assert max(SlowWorker.most) == 2 * capacity


def heartbeat_of(info: dispatcher_pb2.WorkerInfo) -> dispatcher_pb2.WorkerHeartbeatRequest:
    return dispatcher_pb2.WorkerHeartbeatRequest(
        worker_id=info.worker_id, address=info.address, capacity=info.capacity, protocol=PROTOCOL
    )


class FakeExchange:
    """Counts the heartbeats that are requested."""

    requests = 0

    def check_run(self) -> None:
        pass

    next_heartbeat = 1

    def check_others(self, epoch: int, since: int, waited: float) -> None:
        pass

    def request_heartbeat(self) -> None:
        self.requests += 1

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        return True


def reader_of(
    pool: WorkerPool, timeout: float, trainer: NoTrainer, **source_fields: Any
) -> EpochReader:
    """Return the reader of an epoch with one partition, which is not open."""
    job = types_pb2.Job(num_splits=2, partitions=2, row_spec=system.NUMBERS.to_json())
    source = RowSource(
        job,
        pool,
        PartitionFacts(),
        FakeExchange(),
        StreamStats(),
        ReadAhead(1),
        timeout,
        **source_fields,
    )
    return EpochReader(source, share_of(job, 0, 2), 0, trainer)


def reader_without_workers(pool: WorkerPool, timeout: float) -> EpochReader:
    """Return the reader of an epoch whose rows never come."""
    reader = reader_of(pool, timeout, NoTrainer())
    reader.open(0, PartitionPosition())
    return reader


@pytest.mark.parametrize("full", [False, True])
def test_a_wait_counts_only_if_a_further_split_would_shorten_it(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    monkeypatch.setattr(PartitionReader, "is_full", full)
    reader = reader_without_workers(pool, timeout=30.0)
    monkeypatch.setattr(reader, "_arrived", MagicMock())
    with reader._lock:
        reader._wait("rows", reader.partitions[0], ProgressDeadline(30.0))
    assert (reader._waited == 0.0) == full
    assert (reader._waited_for_head == 0.0) == (not full)
    reader.close()


def test_cancel_ends_a_wait_for_rows_and_one_for_facts(pool: WorkerPool) -> None:
    reader = reader_without_workers(pool, timeout=30.0)
    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(reader.take, 0, 1)
        eventually(lambda: "rows" in reader.source.stats.waiting)
        reader.cancel()
        with pytest.raises(Cancelled):
            waiting.result(10)
    with pytest.raises(Cancelled):
        reader.wait_facts("the others", ProgressDeadline(30.0))
    reader.close()


def test_rows_that_never_come_end_in_an_error(pool: WorkerPool) -> None:
    reader = reader_without_workers(pool, timeout=0.3)
    with pytest.raises(UnavailableError, match=r"spec\.sidecar\.timeoutSeconds"):
        reader.take(0, 1)
    reader.close()


def test_time_does_not_count_while_the_trainer_does_not_wait(pool: WorkerPool) -> None:
    reader = reader_without_workers(pool, timeout=30.0)
    deadline = ProgressDeadline(0.1)

    def wait(times: int) -> None:
        for _ in range(times):  # of 0.2 s each
            reader.wait_facts("the others", deadline)

    wait(3)
    exchange = reader.source.exchange
    assert isinstance(exchange, FakeExchange)
    assert exchange.requests == 3
    reader._trainer = WaitingTrainer()
    with pytest.raises(UnavailableError, match="no report of the others arrived for 0 s"):
        wait(3)
    reader.close()


def test_the_end_of_a_partition_opened_at_its_last_row_is_a_fact(pool: WorkerPool) -> None:
    """Otherwise two consumers that resume at their last rows wait for each other."""
    server = streaming.serve(Worker(streaming.ROWS))
    pool.update([streaming.info("worker", server)])
    reader = reader_of(pool, 30.0, NoTrainer())
    rows = streaming.ROWS // 2
    reader.open(0, PartitionPosition(rows=rows))
    assert reader.locate(0) is None
    eventually(lambda: all(fact.ended for fact in reader.facts()))
    (fact,) = reader.facts()
    assert (fact.rows_seen, list(fact.split_rows)) == (rows, [rows])
    reader.close()
    server.stop(0)


def test_a_partition_that_is_opened_again_closes_its_streams(pool: WorkerPool) -> None:
    reader = reader_without_workers(pool, timeout=30.0)
    before = reader.partitions[0]
    assert before.head != "no split"
    reader.open(0, PartitionPosition())
    assert before.head == "no split"
    assert reader.partitions[0].head != "no split"
    reader.close()
    assert reader.partitions[0].head == "no split"


# With the rows and the times that the test gives.


BLOCK = RowBlock(0, 1, (), np.zeros(1, np.uint64))


@dataclass
class GivenPartition:
    """A partition with the rows of the next calls of `take`."""

    takes: list[list[RowBlock]] = field(default_factory=list)
    ended: bool = False
    total: int | None = None
    problem: str = ""
    replayed: int = 0
    advanced_at: float = 0.0
    located: int = 0  # calls of `locate` until it is found
    ahead: int = 0
    passed: bool = False
    all_seen: bool = False
    is_full: bool = False
    open_splits: int = 1
    rows, rows_seen, first_ordinal, first_before, total_replayed = 3, 4, 1, 2, 5
    lengths, head = (2,), "the split"

    def next(self, rows: int) -> list[RowBlock]:
        """Return the next rows."""
        assert rows == 2
        return self.takes.pop(0) if self.takes else []

    def locate(self) -> bool:
        """Return whether the start was found."""
        self.located -= 1
        return self.located < 0

    def read_ahead(self, splits: int) -> None:
        """Record the number of splits."""
        self.ahead = splits

    def pass_ended_splits(self) -> None:
        """Record the call."""
        self.passed = True


class SteppedWait(threading.Condition):
    """A condition whose waits advance the clock.

    Attributes:
        notified: whether `notify_all` was called.
        seen: what the input waited for, in each wait.
        on_wait: called by each wait.
    """

    def __init__(self, clock: Clock, waiting: dict[str, str], lock: Any = None) -> None:
        super().__init__(lock)
        self.notified = False
        self.seen: list[dict[str, str]] = []
        self.on_wait: Callable[[], None] = lambda: None
        self._clock, self._waiting = clock, waiting

    def wait(self, timeout: float | None = None) -> bool:
        """Advance the clock to the end of the wait."""
        assert timeout is not None
        self._clock.now += timeout
        self.seen.append(dict(self._waiting))
        self.on_wait()
        return False

    def notify_all(self) -> None:
        """Record the call."""
        self.notified = True
        super().notify_all()


class RecordingTrainer(NoTrainer):
    """Records what it is sent. `on_flush` is called when kept units are sent."""

    def __init__(self) -> None:
        self.has_unsent = False
        self.flushes = 0
        self.reports: list[str] = []
        self.on_flush: Callable[[], None] = lambda: None

    def flush(self, cancelled: threading.Event) -> None:
        """Record the call."""
        self.flushes += 1
        self.has_unsent = False
        self.on_flush()

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        """Record the report."""
        self.reports.append(what)


@pytest.fixture(autouse=True)
def whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let waits for rows take 1 s, which is easier to count."""
    monkeypatch.setattr(epoch_reader, "_LOOK_SECONDS", 1.0)


class SteppedReader:
    """A reader with given partitions. Time passes only in its waits, of 1 s for rows."""

    def __init__(self, pool: WorkerPool, clock: Clock, *partitions: GivenPartition) -> None:
        self.trainer = RecordingTrainer()
        self.reader = reader_of(pool, 60.0, self.trainer)
        given: Any = dict(enumerate(partitions))
        self.reader.partitions = given
        self.waiting = self.reader.source.stats.waiting
        self.arrived = SteppedWait(clock, self.waiting, self.reader._lock)
        self.changed = SteppedWait(clock, self.waiting)
        self.reader._arrived = self.arrived
        self.reader.source.facts.changed = self.changed

    def take(self) -> list[RowBlock]:
        """Take two rows of partition 0."""
        return self.reader.take(0, 2)


def test_rows_that_come_later_are_waited_for(pool: WorkerPool, clock: Clock) -> None:
    stepped = SteppedReader(pool, clock, GivenPartition([[], [], [BLOCK]]))
    assert stepped.take() == [BLOCK]
    assert stepped.arrived.seen == [{"rows": "rows of partition 0"}] * 2
    assert stepped.waiting == {}
    assert clock.now == 102.0


def test_rows_and_waits_are_counted_by_source(pool: WorkerPool, clock: Clock) -> None:
    stepped = SteppedReader(pool, clock, GivenPartition([[], [], [BLOCK]]))
    stepped.take()
    assert stepped.reader.source.stats.sources == {}
    stepped = SteppedReader(pool, clock, GivenPartition([[], [], [BLOCK], [BLOCK, BLOCK]]))
    web, code = SourceStats(), SourceStats(5, 1.5)
    stepped.reader._of_sources = [code, web]
    stepped.reader.partitions[2] = stepped.reader.partitions[0]  # of the second source
    stepped.reader.source.job.partitions = 2
    stepped.reader.take(2, 2)
    waited = stepped.reader._waited
    assert waited > 0
    assert web == SourceStats(BLOCK.rows, waited)
    stepped.reader.take(2, 2)
    assert web == SourceStats(3 * BLOCK.rows, waited)
    assert code == SourceStats(5, 1.5)


def test_a_partition_at_its_end_has_no_rows(pool: WorkerPool, clock: Clock) -> None:
    stepped = SteppedReader(pool, clock, GivenPartition(ended=True))
    assert stepped.take() == []
    stepped = SteppedReader(pool, clock, GivenPartition([[BLOCK]], ended=True))
    assert stepped.take() == [BLOCK]
    assert clock.now == 100.0


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        (GivenPartition(), "no rows of partition 0 arrived for 60 s .*its dataset produces nothi"),
        (GivenPartition(problem="no worker"), r"the split\): no worker. Check"),
        (GivenPartition(replayed=7), r"0 \(workers have replayed 7 rows before them\) arrived"),
    ],
)
def test_the_error_of_a_wait_has_its_cause(
    pool: WorkerPool, clock: Clock, partition: GivenPartition, message: str
) -> None:
    stepped = SteppedReader(pool, clock, partition)
    with pytest.raises(UnavailableError, match=message):
        stepped.take()
    assert clock.now == 161.0
    assert len(stepped.trainer.reports) == 4, "the wait was reported"


def test_each_row_received_restarts_the_deadline(pool: WorkerPool, clock: Clock) -> None:
    stepped = SteppedReader(pool, clock, GivenPartition(advanced_at=130.0))
    with pytest.raises(UnavailableError):
        stepped.take()
    assert clock.now == 191.0


def test_units_that_are_kept_back_are_sent_before_a_wait(pool: WorkerPool, clock: Clock) -> None:
    partition = GivenPartition()
    stepped = SteppedReader(pool, clock, partition)
    stepped.trainer.has_unsent = True
    stepped.trainer.on_flush = lambda: partition.takes.append([BLOCK])
    assert stepped.take() == [BLOCK]
    assert clock.now == 100.0, "the rows came while the units were sent"
    assert stepped.trainer.reports == []


def test_the_start_of_a_partition_is_waited_for(pool: WorkerPool, clock: Clock) -> None:
    stepped = SteppedReader(pool, clock, GivenPartition(located=1, total=9))
    assert stepped.reader.locate(0) == 9
    assert stepped.arrived.seen == [{"rows": "split border before row 3 of partition 0"}]


def test_all_partitions_read_ahead(pool: WorkerPool, clock: Clock) -> None:
    partitions = [GivenPartition(), GivenPartition()]
    SteppedReader(pool, clock, *partitions).reader.read_ahead()
    assert [one.ahead for one in partitions] == [1, 1]


def test_the_queues_become_smaller_when_more_splits_are_open(pool: WorkerPool) -> None:
    reader = reader_of(pool, 1.0, NoTrainer(), queue_bytes=lambda streams: 1000 // streams)
    assert reader._context.queue_bytes == 1000 // 2
    reader.source.read_ahead.splits = 3
    reader.read_ahead()
    assert reader._context.queue_bytes == 1000 // 4


def test_the_queues_become_larger_only_when_splits_are_closed(
    pool: WorkerPool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_reader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    reader = reader_of(pool, 1.0, NoTrainer(), queue_bytes=lambda streams: 1000 // streams)
    given: Any = GivenPartition()
    reader.partitions = {0: given}
    for open_splits, queue in ((10, 100), (5, 200), (1, 500)):
        given.open_splits = open_splits
        clock.now += 60.0
        reader.read_ahead()
        assert reader._context.queue_bytes == queue


def test_the_streams_know_the_rows_of_a_step(pool: WorkerPool) -> None:
    reader = reader_of(pool, 1.0, NoTrainer(), most_head_bytes=77)
    shared = reader._context
    assert (shared.step_rows, shared.most_head_bytes) == (
        share_of(reader.source.job, 0, 2).quota,
        77,
    )


@pytest.mark.parametrize("lengths", [(), (2,)])
@pytest.mark.parametrize("full", [False, True])
def test_the_number_of_splits_follows_the_waits_and_rows_since_the_last_change(
    pool: WorkerPool,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    lengths: tuple[int, ...],
    full: bool,
) -> None:
    monkeypatch.setattr(epoch_reader, "time", SimpleNamespace(monotonic=lambda: clock.now))
    partition: Any = GivenPartition(is_full=full)
    partition.lengths = lengths
    reader = SteppedReader(pool, clock, partition).reader
    ahead, stats = reader.source.read_ahead, reader.source.stats
    adapted: list[ReadingTime] = []
    monkeypatch.setattr(ahead, "adapt", lambda _capacity, last: adapted.append(last))
    for rows, seconds in ((5, 0.25), (15, 0.25)):  # the first call begins, the second is too early
        stats.rows = rows
        reader.read_ahead()
        clock.now += seconds
    with reader._lock:
        reader._wait("rows", partition, ProgressDeadline(60.0))
    stats.rows = 25
    reader.read_ahead()
    assert adapted == [ReadingTime(1.5, 0.0 if full else 1.0, 20, 1.0 if full else 0.0)]
    clock.now += 1.0
    reader.read_ahead()
    assert adapted[1] == ReadingTime(1.0, 0.0, 0, 0.0)
    assert ahead.has_end == bool(lengths)


def test_a_wait_for_facts_is_reported(pool: WorkerPool, clock: Clock) -> None:
    stepped = SteppedReader(pool, clock)
    deadline = ProgressDeadline(60.0)
    for _ in range(45):
        stepped.reader.wait_facts("the others", deadline)
    assert clock.now == pytest.approx(109.0)
    assert stepped.trainer.reports == []
    for _ in range(10):
        stepped.reader.wait_facts("the others", deadline)
    assert stepped.trainer.reports == ["the others"]
    assert stepped.trainer.flushes == 55
    assert stepped.changed.seen == [{"facts": "the others"}] * 55
    assert stepped.waiting == {}


def test_cancel_wakes_all_waits(pool: WorkerPool, clock: Clock) -> None:
    stepped = SteppedReader(pool, clock, GivenPartition())
    stepped.arrived.on_wait = stepped.reader.cancelled.set
    with pytest.raises(Cancelled):
        stepped.take()
    stepped.reader.cancel()
    assert stepped.arrived.notified
    assert stepped.changed.notified


def test_the_facts_have_the_rows_of_each_partition(pool: WorkerPool, clock: Clock) -> None:
    partitions = [GivenPartition(), GivenPartition(total=9, ended=True)]
    stepped = SteppedReader(pool, clock, *partitions)
    assert stepped.reader.reported_rows == 0
    running = fact(0, [2], rows_seen=4, first_ordinal=1, first_rows=2, remade=5)
    ended = fact(1, [2], rows_seen=9, ended=True, first_ordinal=1, first_rows=2, remade=5)
    assert stepped.reader.facts() == [running, ended]
    assert stepped.reader.reported_rows == 13
    assert all(one.passed for one in partitions)


@pytest.mark.parametrize("exhaustion", [types_pb2.STOP, types_pb2.DROP_SOURCE])
def test_the_end_of_a_list_is_a_fact_before_its_last_row_is_taken_if_it_may_never_be(
    pool: WorkerPool, clock: Clock, exhaustion: types_pb2.Exhaustion
) -> None:
    stepped = SteppedReader(pool, clock, GivenPartition(all_seen=True))
    stepped.reader.source.job.exhaustion = exhaustion
    (found,) = stepped.reader.facts()
    assert (found.rows_seen, found.ended) == (4, exhaustion == types_pb2.DROP_SOURCE)


def test_the_first_replay_that_made_other_rows_is_known(pool: WorkerPool) -> None:
    reader = reader_without_workers(pool, timeout=30.0)
    assert reader.difference == ""
    reader._context.differences.extend(["split 1 differs", "split 2 differs"])
    assert reader.difference == "split 1 differs"
    reader.close()
