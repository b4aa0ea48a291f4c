from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.assignment.share import share_of
from distributed_input.sidecar.errors import Cancelled
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.streams.partition_reader import PartitionStart
from distributed_input.sidecar.streams.stream_context import StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar import system
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


class FakeExchange:
    """Counts the heartbeats that are requested."""

    requests = 0

    def check_run(self) -> None:
        pass

    def request_heartbeat(self) -> None:
        self.requests += 1

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        return True


def reader_without_workers(pool: WorkerPool, timeout: float) -> EpochReader:
    """Return the reader of an epoch whose rows never come."""
    reader = reader_of(pool, timeout)
    reader.open(0, PartitionStart())
    return reader


def reader_of(pool: WorkerPool, timeout: float) -> EpochReader:
    """Return the reader of an epoch of two consumers, with one split for each."""
    job = types_pb2.Job(num_splits=2, partitions=2, row_spec=system.NUMBERS.to_json())
    exchange = FakeExchange()
    source = RowSource(job, pool, PartitionFacts(), exchange, StreamStats(), 1, timeout)
    return EpochReader(source, share_of(job, 0, 2), 0, NoTrainer())


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
    reader = reader_of(pool, timeout=30.0)
    rows = streaming.ROWS // 2
    reader.open(0, PartitionStart(rows=rows))
    assert reader.locate(0) is None
    eventually(lambda: all(fact.ended for fact in reader.facts()))
    (fact,) = reader.facts()
    assert (fact.rows_seen, list(fact.split_rows)) == (rows, [rows])
    reader.close()
    server.stop(0)
