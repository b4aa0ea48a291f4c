"""The splits of a partition, one after the other: with real workers, and with given streams.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import ConfigError, DatasetFnError
from distributed_input.order.repeated_splits import RepeatedSplits
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.streams import partition_reader
from distributed_input.sidecar.streams.partition_reader import (
    PartitionPosition,
    PartitionReader,
)
from distributed_input.sidecar.streams.stream_context import StreamContext
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar.streams.streaming import (
    ROWS,
    SECONDS,
    context,
    info,
    serve,
)
from tests.unit.distributed_input.sidecar.system import BLOCK, Worker

SPLITS = 3  # of ROWS // SPLITS rows each


@pytest.fixture
def shared(pool: WorkerPool) -> Iterator[StreamContext]:
    """An epoch with one partition of three splits."""
    server = serve(Worker(ROWS))
    pool.update([info("worker", server)])
    yield context(pool, splits=SPLITS)
    server.stop(0)


def open_at(shared: StreamContext, start: PartitionPosition) -> PartitionReader:
    with shared.lock:
        return PartitionReader(shared, shared.plan.deal[0], start)


def read(shared: StreamContext, reader: PartitionReader, rows: int) -> list[int]:
    """Take rows until there are `rows`, or the partition ends. Return their numbers."""
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    with shared.lock:
        while len(found) < rows and not reader.ended:
            for block in reader.next(rows - len(found)):
                found += block.buffers[0].view(np.int64).tolist()
            assert time.monotonic() < deadline, "no row came"
            shared.arrived.wait(0.02)
    return found


def expected_rows(shared: StreamContext, rows: int = ROWS) -> list[int]:
    """Return the numbers of the partition's rows in order."""
    return [row for split in shared.plan.deal[0] for row in range(split, rows, SPLITS)]


@pytest.mark.parametrize("read_ahead", [0, 1, 5])
def test_splits_follow_each_other_in_order(shared: StreamContext, read_ahead: int) -> None:
    reader = open_at(shared, PartitionPosition())
    with shared.lock:
        reader.read_ahead(read_ahead)
    assert read(shared, reader, ROWS + 1) == expected_rows(shared)
    assert (reader.ended, reader.total, reader.rows) == (True, ROWS, ROWS)
    assert reader.lengths == [ROWS // SPLITS] * SPLITS


def test_a_split_whose_queue_is_full_waits_until_it_is_read(pool: WorkerPool) -> None:
    rows = SPLITS * 2 * BLOCK  # the second block of a split waits for the first one
    server = serve(Worker(rows))
    pool.update([info("worker", server)])
    shared = replace(context(pool, splits=SPLITS), queue_bytes=1)
    reader = open_at(shared, PartitionPosition())
    with shared.lock:
        assert shared.arrived.wait_for(lambda: reader.is_full, SECONDS)
    assert read(shared, reader, rows) == expected_rows(shared, rows)
    assert not reader.is_full
    server.stop(0)


@pytest.mark.parametrize("rows", range(ROWS + 1))
def test_a_restored_start_skips_no_row_and_repeats_none(shared: StreamContext, rows: int) -> None:
    reader = open_at(shared, PartitionPosition(rows=rows))
    assert read(shared, reader, ROWS) == expected_rows(shared)[rows:]
    assert reader.rows == ROWS


@pytest.mark.parametrize("rows", range(0, ROWS + 1, 3))
def test_a_reader_goes_on_where_another_one_stopped(shared: StreamContext, rows: int) -> None:
    stopped = open_at(shared, PartitionPosition())
    begun = read(shared, stopped, rows)
    position = stopped.state()
    with shared.lock:
        stopped.close()
        stopped.close()
    assert stopped.state() == position
    assert [*begun, *read(shared, open_at(shared, position), ROWS)] == expected_rows(shared)


def test_a_start_behind_the_end_finds_the_end(shared: StreamContext) -> None:
    reader = open_at(shared, PartitionPosition(rows=ROWS + 5))
    deadline = time.monotonic() + SECONDS
    with shared.lock:
        while not reader.locate():
            assert time.monotonic() < deadline
            shared.arrived.wait(0.02)
    assert reader.total == ROWS


def test_the_position_counts_the_rows_of_the_split_that_is_read(shared: StreamContext) -> None:
    reader = open_at(shared, PartitionPosition())
    read(shared, reader, ROWS // SPLITS + 2)
    prefix = Prefix().extend(np.zeros(2, np.uint64))  # the worker's digests are zeros
    expected = PartitionPosition(1, ROWS // SPLITS, ROWS // SPLITS + 2, prefix, ended=False)
    assert reader.state() == expected


def test_a_closed_reader_has_no_streams(shared: StreamContext) -> None:
    reader = open_at(shared, PartitionPosition())
    read(shared, reader, 1)
    with shared.lock:
        reader.close()
    assert (reader.head, reader.problem, reader.replayed) == ("no split", "", 0)


def test_a_reader_that_is_left_stands_at_an_earlier_row_and_opens_nothing(
    shared: StreamContext,
) -> None:
    reader = open_at(shared, PartitionPosition())
    read(shared, reader, 4)
    before = reader.state()
    read(shared, reader, ROWS // SPLITS)  # in the second split
    with shared.lock:
        seen = reader.rows_seen
        reader.close(before)
        reader.read_ahead(3)
        assert (reader.state(), reader.rows_seen, reader.open_splits) == (before, seen, 0)


def test_a_reader_that_is_opened_again_has_seen_as_many_rows(shared: StreamContext) -> None:
    with shared.lock:
        reader = PartitionReader(shared, shared.plan.deal[0], PartitionPosition(), ROWS - 1)
        assert reader.rows_seen == ROWS - 1
    read(shared, reader, ROWS)
    assert reader.rows_seen == ROWS


def test_a_closed_reader_has_seen_as_many_rows_as_before(shared: StreamContext) -> None:
    """A new dispatcher gets this fact from a consumer whose epoch is over."""
    reader = open_at(shared, PartitionPosition())
    read(shared, reader, ROWS // SPLITS + 2)
    with shared.lock:
        before = reader.rows_seen
        reader.close()
        reader.close()
    assert before >= ROWS // SPLITS + 2
    assert reader.rows_seen == before


# With streams that receive what the test gives them.


class GivenStream:
    """The stream of one split, with the attributes of `SplitStream`."""

    def __init__(
        self,
        context: StreamContext,
        split: int,
        ordinal: int,
        start_row: int,
        prefix: Prefix | None,
    ) -> None:
        self.split, self.ordinal, self.start_row, self.prefix = split, ordinal, start_row, prefix
        self.received, self.opened = start_row, False
        self.total: int | None = None
        self.replayed = self.total_replayed = 0
        self.advanced_at = float("-inf")
        self.worker = self.problem = ""
        self.error: Exception | None = None
        self.closed = self.granted = False
        self._queued = 0
        STREAMS.append(self)

    def grant(self) -> None:
        """Let the worker send more."""
        self.granted = True

    def give(self, rows: int, last: bool = False) -> None:
        """Receive the first answer, or more rows."""
        self.opened = True
        self._queued += rows
        self.received += rows
        self.total = self.received if last else None

    def end_before_start(self, total: int) -> None:
        """Receive the end of a split that is shorter than its assumed start."""
        self.opened, self.received, self.total = True, total, total

    def next(self, rows: int) -> list[RowBlock]:
        if self.error is not None:
            raise self.error
        taken = min(rows, self._queued)
        first = self.received - self._queued
        self._queued -= taken
        return [RowBlock(first, taken, (), digests(first, taken))] if taken else []

    def state(self) -> Prefix | None:
        return prefix_of(self.received - self._queued) if self.opened else None

    @property
    def exhausted(self) -> bool:
        return self.total is not None and not self._queued

    def close(self) -> None:
        self.closed = True


STREAMS: list[GivenStream] = []


def digests(first: int, rows: int) -> Any:
    return np.arange(first, first + rows, dtype=np.uint64) + np.uint64(5)


def prefix_of(rows: int) -> Prefix:
    return Prefix().extend(digests(0, rows))


def reader_of(
    pool: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    start: PartitionPosition | None = None,
    splits: Sequence[int] = (7, 8, 9),
) -> PartitionReader:
    """Return a reader of splits whose streams are in STREAMS."""
    STREAMS.clear()
    monkeypatch.setattr(partition_reader, "SplitStream", GivenStream)
    return PartitionReader(context(pool), splits, start or PartitionPosition())


def taken(reader: PartitionReader, rows: int) -> int:
    return sum(block.rows for block in reader.next(rows))


def test_splits_are_opened_ahead_when_requested(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch)
    assert [one.split for one in STREAMS] == [7]
    reader.read_ahead(1)
    assert [(one.split, one.ordinal, one.start_row) for one in STREAMS] == [(7, 0, 0), (8, 1, 0)]
    STREAMS[0].give(2, last=True)
    assert taken(reader, 2) == 2
    assert [one.split for one in STREAMS] == [7, 8, 9]
    assert [one.granted for one in STREAMS] == [False, True, False], "the next split is read now"


def test_one_batch_takes_rows_of_several_splits(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch)
    reader.read_ahead(2)
    for stream, rows in zip(STREAMS, (3, 1, 4), strict=True):
        stream.give(rows, last=True)
    assert [block.rows for block in reader.next(5)] == [3, 1, 1]
    assert reader.state() == PartitionPosition(2, 4, 5, prefix_of(1), ended=False)
    assert taken(reader, 3) == 3
    assert reader.ended, "as soon as the last row is taken"
    assert reader.lengths == [3, 1, 4]
    reader.read_ahead(5)
    assert len(STREAMS) == 3


def test_a_start_within_a_split_counts_from_its_known_rows(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, PartitionPosition(1, 4, 6, prefix_of(1)))
    (stream,) = STREAMS
    assert (stream.split, stream.start_row, stream.prefix) == (8, 2, prefix_of(1))
    assert reader.state() == PartitionPosition(1, 4, 6, None, ended=False)
    reader.read_ahead(1)
    stream.give(1)
    assert taken(reader, 2) == 1
    assert [one.split for one in STREAMS] == [8, 9]
    assert reader.state() == PartitionPosition(1, 4, 7, prefix_of(3), ended=False)


def test_a_start_at_a_border_needs_no_prefix(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader_of(pool, monkeypatch, PartitionPosition(1, 4, 4, prefix_of(1)))
    (stream,) = STREAMS
    assert (stream.split, stream.start_row, stream.prefix) == (8, 0, None)


def test_splits_behind_an_assumed_start_open_when_the_start_is_found(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, PartitionPosition(rows=6, prefix=prefix_of(1)))
    reader.read_ahead(2)
    assert len(STREAMS) == 1, "the first row of the next split is not known"
    assert not reader.locate()
    STREAMS[0].end_before_start(4)
    assert not reader.locate()
    assert (STREAMS[1].start_row, STREAMS[1].prefix) == (2, None)
    assert len(STREAMS) == 2
    STREAMS[1].give(3)
    assert reader.locate()
    assert [one.start_row for one in STREAMS] == [0 + 6, 2, 0]
    assert taken(reader, 9) == 3
    assert reader.state() == PartitionPosition(1, 4, 9, prefix_of(5), ended=False)


def test_a_start_is_found_at_the_end_of_its_split(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, PartitionPosition(rows=6))
    STREAMS[0].give(0, last=True)
    assert reader.locate()
    assert (reader.ended, taken(reader, 5), reader.state().ordinal) == (False, 0, 1)


def test_the_error_of_a_stream_ends_the_search_for_the_start(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, PartitionPosition(rows=6))
    STREAMS[0].error = ConfigError("no such column")
    with pytest.raises(ConfigError, match="no such column"):
        reader.locate()


@pytest.mark.parametrize("rows", [0, 3])
def test_a_partition_without_splits_ends_at_once(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    for find in (PartitionReader.locate, lambda one: one.next(1) == []):
        reader = reader_of(pool, monkeypatch, PartitionPosition(rows=rows), splits=())
        assert find(reader)
        assert reader.ended == (rows > 0 or find is not PartitionReader.locate)


@pytest.mark.parametrize("locate", [True, False])
def test_the_end_of_a_partition_opened_at_its_last_row_is_found(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, locate: bool
) -> None:
    reader = reader_of(pool, monkeypatch, PartitionPosition(rows=4), splits=(7, 8))
    reader.pass_ended_splits()
    assert len(STREAMS) == 1, "the first split has not answered"
    STREAMS[0].give(0, last=True)
    assert not locate or reader.locate()
    reader.pass_ended_splits()
    assert [one.split for one in STREAMS] == [7, 8]
    assert not reader.ended, "the second split may have rows"
    STREAMS[1].give(0, last=True)
    reader.pass_ended_splits()
    assert (reader.ended, reader.total, reader.lengths) == (True, 4, [4, 0])


def test_a_partition_without_splits_has_ended(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, splits=())
    reader.pass_ended_splits()
    assert (reader.ended, reader.total) == (True, 0)


def test_a_split_is_not_passed_before_the_splits_in_front_of_it(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, splits=(7, 8))
    reader.read_ahead(1)
    STREAMS[1].give(0, last=True)
    reader.pass_ended_splits()
    assert (reader.lengths, reader.ended) == ([], False)


def test_a_split_with_rows_left_is_not_passed(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, PartitionPosition(rows=3))
    STREAMS[0].give(1, last=True)
    reader.pass_ended_splits()
    assert len(STREAMS) == 1
    assert taken(reader, 5) == 1


def test_a_closed_partition_does_not_end(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(pool, monkeypatch)
    reader.close()
    reader.pass_ended_splits()
    assert not reader.ended


def test_only_rows_without_a_gap_are_a_fact(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch)
    reader.read_ahead(2)
    STREAMS[2].give(5)
    assert reader.rows_seen == 0
    STREAMS[0].give(3)
    assert reader.rows_seen == 3
    STREAMS[0].give(1, last=True)
    assert reader.rows_seen == 4, "the second split has not answered"
    STREAMS[1].give(2)
    assert reader.rows_seen == 6, "the second split may have more rows"
    STREAMS[1].give(1, last=True)
    assert reader.rows_seen == 12


def test_all_rows_are_seen_before_they_are_taken(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, PartitionPosition(rows=5), splits=(7, 8))
    reader.read_ahead(1)
    assert not reader.all_seen
    STREAMS[0].give(3, last=True)
    assert not reader.all_seen, "the second split is not open"
    reader.pass_ended_splits()
    STREAMS[1].give(2)
    assert not reader.all_seen, "the second split may have more rows"
    STREAMS[1].give(1, last=True)
    assert (reader.all_seen, reader.rows_seen, reader.ended) == (True, 11, False)
    reader.close()
    assert (reader.all_seen, reader.rows_seen, reader.ended) == (True, 11, False)


def test_a_closed_reader_has_not_seen_the_rows_behind_it(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, splits=(7,))
    STREAMS[0].give(3)
    reader.close()
    reader.close()
    assert not reader.all_seen


def test_reports_are_about_the_split_that_is_read(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch)
    assert reader.total_replayed == 0
    reader.read_ahead(1)
    for count, stream in enumerate(STREAMS, 1):
        stream.replayed, stream.total_replayed, stream.advanced_at = count, 10 * count, count
        stream.worker, stream.problem = f"worker-{count}", f"problem {count}"
    assert (reader.replayed, reader.total_replayed, reader.advanced_at) == (1, 30, 1)
    assert reader.problem == "problem 1"
    assert "split 7 of" in reader.head
    assert "row 0, requested from worker worker-1" in reader.head
    STREAMS[0].give(1, last=True)
    assert taken(reader, 1) == 1
    assert (reader.replayed, reader.total_replayed, reader.advanced_at) == (2, 30, 2)
    reader.close()
    assert [one.closed for one in STREAMS] == [False, True, True]
    assert (reader.total_replayed, reader.advanced_at) == (10, float("-inf"))


def test_a_list_that_repeats_ends_with_an_error_only_if_all_its_splits_are_empty(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, splits=RepeatedSplits(0, 0, [1, 0], SPLITS))
    for at, rows in enumerate((0, 2, 0, 1, 0)):
        STREAMS[at].give(rows, last=True)
        assert taken(reader, 5) == rows
    assert [one.split for one in STREAMS[:2]] == [1, 0]
    assert sorted(one.split for one in STREAMS[2:4]) == [SPLITS, SPLITS + 1]
    # The last split of a round may be the first one of the next: two empty ones are not all.
    for _ in range(2):
        STREAMS[-1].give(0, last=True)
        assert reader.next(0) == []
        reader.pass_ended_splits()
    count = len(STREAMS)
    reader.pass_ended_splits()
    assert len(STREAMS) == count, "no more splits are opened"
    for call in (lambda: reader.next(1), reader.locate):
        with pytest.raises(DatasetFnError, match="has no rows in one of the partitions"):
            call()


def test_the_first_lengths_of_a_list_that_repeats_are_forgotten(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = reader_of(pool, monkeypatch, splits=RepeatedSplits(0, 0, [0, 1], SPLITS))
    for at in range(5):
        STREAMS[at].give(at + 1, last=True)
        taken(reader, 10)
    reader.forget_lengths(2)
    assert (reader.first_ordinal, reader.first_before, reader.lengths) == (3, 6, [4, 5])
    reader.forget_lengths(2)
    assert (reader.first_ordinal, reader.first_before, reader.lengths) == (3, 6, [4, 5])
    assert reader.rows_seen == 15
