from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.streams.partition_reader import (
    PartitionPosition,
    PartitionReader,
    PartitionStart,
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
from tests.unit.distributed_input.sidecar.system import Worker

SPLITS = 3  # of ROWS // SPLITS rows each


@pytest.fixture
def shared(pool: WorkerPool) -> Iterator[StreamContext]:
    """An epoch with one partition of three splits."""
    server = serve(Worker(ROWS))
    pool.update([info("worker", server)])
    yield context(pool, splits=SPLITS)
    server.stop(0)


def open_at(shared: StreamContext, start: PartitionStart) -> PartitionReader:
    with shared.lock:
        return PartitionReader(shared, shared.plan.deal[0], start)


def read(shared: StreamContext, reader: PartitionReader, rows: int) -> list[int]:
    """Take rows until there are `rows`, or the partition ends. Return their numbers."""
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    with shared.lock:
        while len(found) < rows and not reader.ended:
            for block in reader.take(rows - len(found)):
                found += block.buffers[0].view(np.int64).tolist()
            assert time.monotonic() < deadline, "no row came"
            shared.arrived.wait(0.02)
    return found


def expected_rows(shared: StreamContext) -> list[int]:
    """Return the numbers of the partition's rows in order."""
    return [row for split in shared.plan.deal[0] for row in range(split, ROWS, SPLITS)]


@pytest.mark.parametrize("read_ahead", [0, 1, 5])
def test_splits_follow_each_other_in_order(shared: StreamContext, read_ahead: int) -> None:
    reader = open_at(shared, PartitionStart())
    with shared.lock:
        reader.read_ahead(read_ahead)
    assert read(shared, reader, ROWS + 1) == expected_rows(shared)
    assert (reader.ended, reader.total, reader.rows) == (True, ROWS, ROWS)
    assert reader.lengths == [ROWS // SPLITS] * SPLITS


@pytest.mark.parametrize("rows", range(ROWS + 1))
def test_a_restored_start_skips_no_row_and_repeats_none(shared: StreamContext, rows: int) -> None:
    reader = open_at(shared, PartitionStart(rows=rows))
    assert read(shared, reader, ROWS) == expected_rows(shared)[rows:]
    assert reader.rows == ROWS


def test_a_start_behind_the_end_finds_the_end(shared: StreamContext) -> None:
    reader = open_at(shared, PartitionStart(rows=ROWS + 5))
    deadline = time.monotonic() + SECONDS
    with shared.lock:
        while not reader.locate():
            assert time.monotonic() < deadline
            shared.arrived.wait(0.02)
    assert reader.total == ROWS


def test_the_position_counts_the_rows_of_the_split_that_is_read(shared: StreamContext) -> None:
    reader = open_at(shared, PartitionStart())
    read(shared, reader, ROWS // SPLITS + 2)
    prefix = Prefix().extend(np.zeros(2, np.uint64))  # the worker's digests are zeros
    expected = PartitionPosition(1, ROWS // SPLITS, ROWS // SPLITS + 2, prefix, ended=False)
    assert reader.position == expected


def test_a_closed_reader_has_no_streams(shared: StreamContext) -> None:
    reader = open_at(shared, PartitionStart())
    read(shared, reader, 1)
    with shared.lock:
        reader.close()
    assert (reader.head, reader.problem, reader.replayed) == ("no split", "", 0)


def test_a_closed_reader_has_seen_as_many_rows_as_before(shared: StreamContext) -> None:
    """A new dispatcher gets this fact from a consumer whose epoch is over."""
    reader = open_at(shared, PartitionStart())
    read(shared, reader, ROWS // SPLITS + 2)
    with shared.lock:
        before = reader.rows_seen
        reader.close()
        reader.close()
    assert before >= ROWS // SPLITS + 2
    assert reader.rows_seen == before
