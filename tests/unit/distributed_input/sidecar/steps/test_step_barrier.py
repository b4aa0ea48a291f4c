from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from distributed_input.api import sidecar_memory
from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.assignment.share import share_of
from distributed_input.client import session
from distributed_input.client.reader import InputReader
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.steps.step_barrier import StepBarrier
from distributed_input.sidecar.streams.stream_context import StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar.steps.trainers import NoTrainer
from tests.unit.distributed_input.sidecar.system import NUMBERS, System, running

ROWS, SPLITS, BATCH, TIMEOUT = 1200, 3, 4, 1.0
LONG = ROWS * 2 // SPLITS * 2 // BATCH
"""Number of steps of consumer 0, whose partition has two of the three splits."""


def trainers(system: System, folder: Path) -> list[InputReader]:
    """Connect two trainers. The second has fewer rows, and a buffer for all of them."""
    readers = []
    for consumer, buffer in enumerate((1 << 12, 1 << 16)):
        own = replace(system, folder=folder / str(consumer))
        own.folder.mkdir()
        settings = {"bufferBytes": buffer, "timeoutSeconds": TIMEOUT}
        own.add_sidecar(consumer, 2, numSplits=SPLITS, sidecar=settings)
        readers.append(own.connect())
    return readers


@pytest.fixture(autouse=True)
def _queue_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_memory, "_QUEUE_BYTES", 1)
    monkeypatch.setattr(session, "_POLL_SECONDS", 0.1)


@pytest.mark.parametrize("waited_before", [False, True])
def test_trainers_may_pause_for_longer_than_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited_before: bool
) -> None:
    """The second sidecar is at its end, and does not know whether the first has more rows."""
    if waited_before:  # so long for the first batch that the trainer has reported it
        monkeypatch.setattr(session, "_POLL_SECONDS", 0.001)
    with running(tmp_path, ROWS) as system:
        both = trainers(system, tmp_path)
        batches = [reader.units(reader.begin()) for reader in both]
        for each in batches:
            assert next(each).rows == BATCH // 2
        threading.Event().wait(3 * TIMEOUT)  # both trainers validate
        with ThreadPoolExecutor(2) as pool:
            steps = list(pool.map(lambda rest: 1 + sum(1 for _ in rest), batches))
        assert steps == [LONG, LONG]
        for reader in both:
            reader.close()


def test_a_trainer_that_waits_for_another_one_times_out(tmp_path: Path) -> None:
    with running(tmp_path, ROWS) as system:
        first, second = trainers(system, tmp_path)
        next(first.units(first.begin()))
        with pytest.raises(UnavailableError, match=r"other trainers' end .*timeoutSeconds"):
            for _ in second.units(second.begin()):
                pass
        first.close()
        second.close()


class Exchange:
    """Merges the same facts with every heartbeat that is requested."""

    def __init__(self, facts: PartitionFacts) -> None:
        self.requests = 0
        self._facts = facts

    def request_heartbeat(self) -> None:
        self.requests += 1
        fact = dispatcher_pb2.PartitionFact(partition=1, rows_seen=(100 + self.requests) * BATCH)
        self._facts.merge([fact])

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        raise AssertionError("not needed before the end of an epoch")

    def check_run(self) -> None:
        pass


def test_facts_of_the_others_are_exchanged_ahead_of_need(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = types_pb2.Job(
        num_splits=2, partitions=2, global_batch_size=2 * BATCH, remainder=types_pb2.DROP
    )
    job.row_spec = NUMBERS.to_json()
    facts = PartitionFacts()
    exchange = Exchange(facts)
    exchange.request_heartbeat()
    share = share_of(job, 0, 2)
    source = RowSource(job, pool, facts, exchange, StreamStats(), 1, 30.0)
    reader = EpochReader(source, share, 0, NoTrainer())
    barrier = StepBarrier(reader, share, [0, 0])
    monkeypatch.setattr(reader, "wait_facts", lambda *_: pytest.fail("a step waits for facts"))
    reader.reported_rows = 10**6
    assert all(barrier.all_have_full_step(step) for step in range(30))
    assert exchange.requests == 1  # 101 steps are known: no heartbeat is needed yet
    assert all(barrier.all_have_full_step(step) for step in range(30, 500))
    assert exchange.requests > 400  # one for each step, ahead of it; the link bounds their rate
    requests = exchange.requests
    facts.merge([dispatcher_pb2.PartitionFact(partition=1, rows_seen=10**6)])
    assert barrier.all_have_full_step(500)
    assert exchange.requests == requests
    reader.reported_rows = 501 * BATCH  # the others know no more than this of our own rows
    assert barrier.all_have_full_step(501)
    assert exchange.requests == requests + 1
