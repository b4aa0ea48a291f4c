from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api import sidecar_memory
from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.api.proto.trainer_pb2 import Anchor
from distributed_input.order.share import share_of
from distributed_input.sidecar.steps import step_barrier
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.steps.step_barrier import StepBarrier
from distributed_input.sidecar.streams.read_ahead import ReadAhead
from distributed_input.sidecar.streams.stream_context import StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from distributed_input.trainer import session
from distributed_input.trainer.consumer import Consumer
from tests.unit.distributed_input.dispatcher.builders import fact
from tests.unit.distributed_input.sidecar.steps.clocks import Clock
from tests.unit.distributed_input.sidecar.steps.readers import GivenFacts
from tests.unit.distributed_input.sidecar.steps.trainers import NoTrainer
from tests.unit.distributed_input.sidecar.system import NUMBERS, System, running

ROWS, SPLITS, BATCH, TIMEOUT = 1200, 3, 4, 1.0
LONG = ROWS * 2 // SPLITS * 2 // BATCH
"""Number of steps of consumer 0, whose partition has two of the three splits."""


def trainers(system: System, folder: Path) -> list[Consumer]:
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


@pytest.mark.slow
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
        self._facts.merge([fact(1, rows_seen=(100 + self.requests) * BATCH)])

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        raise AssertionError("not needed before the end of an epoch")

    def check_run(self) -> None:
        pass

    next_heartbeat = 1

    def check_others(self, epoch: int, since: int, waited: float) -> None:
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
    source = RowSource(job, pool, facts, exchange, StreamStats(), ReadAhead(1), 30.0)
    reader = EpochReader(source, share, 0, NoTrainer())
    barrier = StepBarrier(reader, share, [0, 0])
    monkeypatch.setattr(reader, "wait_facts", lambda *_: pytest.fail("a step waits for facts"))
    reader.reported_rows = 10**6
    assert all(barrier.all_have_full_step(step) for step in range(30))
    assert exchange.requests == 1  # 101 steps are known: no heartbeat is needed yet
    assert all(barrier.all_have_full_step(step) for step in range(30, 500))
    assert exchange.requests > 400  # one for each step, ahead of it; the link bounds their rate
    requests = exchange.requests
    facts.merge([fact(1, rows_seen=10**6)])
    assert barrier.all_have_full_step(500)
    assert exchange.requests == requests
    reader.reported_rows = 501 * BATCH  # the others know no more than this of our own rows
    assert barrier.all_have_full_step(501)
    assert exchange.requests == requests + 1


# With the facts that the test gives.


def barrier_of(
    *reports: Sequence[PartitionFact],
    base: Sequence[int] = (0, 0, 0, 0),
    consumers: int = 2,
    **fields: Any,
) -> tuple[StepBarrier, GivenFacts]:
    """Return the barrier of consumer 0, whose steps have 8 rows of 4 partitions in all."""
    job = types_pb2.Job(partitions=4, global_batch_size=8, **fields)
    reader: Any = GivenFacts(job, *reports)
    return StepBarrier(reader, share_of(job, 0, consumers), base), reader


OPEN = [fact(1, rows_seen=3), fact(3, rows_seen=1)]
"""Four rows of the other consumer, which takes four in each step."""
ENDED = [fact(1, rows_seen=3, ended=True), fact(3, rows_seen=1, ended=True)]
MORE = [fact(1, rows_seen=4)]


@pytest.mark.parametrize(
    ("reports", "steps", "has_rows", "waits"),
    [
        ([OPEN], 0, True, 0),
        ([ENDED], 0, True, 0),
        ([ENDED], 1, False, 0),
        ([OPEN, ENDED], 1, False, 1),
        ([OPEN, MORE], 1, True, 1),
        ([[fact(1, rows_seen=3, ended=True)], OPEN, ENDED], 1, False, 2),
    ],
)
def test_the_facts_show_whether_another_consumer_has_rows(
    reports: list[list[PartitionFact]], steps: int, has_rows: bool, waits: int
) -> None:
    barrier, reader = barrier_of(*reports)
    assert barrier.any_has_rows(steps) is has_rows
    assert reader.unread == len(reports) - 1 - waits


@pytest.mark.parametrize(
    ("reports", "steps", "full"),
    [
        ([OPEN], 0, True),
        ([ENDED], 0, True),
        ([ENDED], 1, False),
        ([OPEN, ENDED], 1, False),
        ([OPEN, [fact(1, rows_seen=7)]], 1, True),
    ],
)
def test_the_facts_show_whether_all_others_have_a_full_step(
    reports: list[list[PartitionFact]], steps: int, full: bool
) -> None:
    barrier, reader = barrier_of(*reports)
    assert barrier.all_have_full_step(steps) is full
    assert not reader.unread


def test_any_and_all_differ_if_only_one_of_the_others_has_rows() -> None:
    facts = [fact(1, rows_seen=2, ended=True), fact(2, rows_seen=0, ended=True)]
    facts += [fact(3, rows_seen=0, ended=True)]
    barrier, _ = barrier_of(facts, consumers=4)
    assert barrier.any_has_rows(0) is True
    assert barrier.all_have_full_step(0) is False


def test_rows_count_from_the_base() -> None:
    barrier, _ = barrier_of(ENDED, base=(0, 2, 0, 2))
    assert barrier.any_has_rows(0) is True
    assert barrier._rows_of(1) == (1, True, 0)
    reported = [fact(1, rows_seen=3, remade=5), fact(3, rows_seen=1, ended=True, remade=2)]
    assert barrier_of(reported)[0]._rows_of(1) == (4, False, 7)


@pytest.mark.parametrize(
    ("consumers", "mode"), [(1, types_pb2.DISTRIBUTED_EPOCH), (2, types_pb2.PARALLEL_EPOCHS)]
)
def test_a_consumer_that_depends_on_no_other_never_waits(consumers: int, mode: Any) -> None:
    barrier, _ = barrier_of(OPEN, consumers=consumers, mode=mode)
    assert barrier.is_alone
    assert (barrier.any_has_rows(1), barrier.all_have_full_step(1)) == (False, True)
    assert barrier.anchors(1) == {}


def test_anchors_are_the_borders_before_the_rows_of_a_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = [fact(1, [3, 4], ended=True, rows_seen=7), fact(3, [5], rows_seen=6)]
    barrier, _ = barrier_of(facts)
    first = dict(barrier.anchors(2))  # four rows of each partition
    assert first == {1: Anchor(ordinal=1, rows=3), 3: Anchor()}
    assert barrier.anchors(20) == first, "they are computed once a second"
    monkeypatch.setattr(step_barrier, "_REFRESH_SECONDS", -1.0)
    assert barrier.anchors(20) == {
        1: Anchor(ordinal=2, rows=7, ended=True),
        3: Anchor(ordinal=1, rows=5),
    }


def test_anchors_follow_the_partition_that_others_continue_with() -> None:
    """Of 20 rows, the partition that has ended gave 7."""
    facts = [fact(1, [3, 4], ended=True, rows_seen=7), fact(3, [5, 7])]
    barrier, _ = barrier_of(facts)
    ended, running = Anchor(ordinal=2, rows=7, ended=True), Anchor(ordinal=2, rows=12)
    assert barrier.anchors(5) == {1: ended, 3: running}


def test_each_new_fact_restarts_the_deadline_of_a_wait(clock: Clock) -> None:
    barrier, reader = barrier_of(OPEN, [fact(1, remade=1)], [fact(1, remade=2)], [], [])

    def wait() -> None:
        clock.now += 9  # of 10 s

    reader.on_wait = wait
    with pytest.raises(UnavailableError):
        barrier.any_has_rows(1)
    assert reader.unread == 0


def test_a_heartbeat_is_requested_as_soon_as_few_steps_are_known() -> None:
    rows = 65 * BATCH
    barrier, reader = barrier_of([fact(1, rows_seen=rows)], base=(3, 0, 2, 0))
    reader.reported_rows = 5 + rows
    assert barrier.all_have_full_step(1)
    assert reader.heartbeats == 0
    reader.reported_rows -= 1  # the others know only 64 of our steps
    assert barrier.all_have_full_step(1)
    assert reader.heartbeats == 1
    reader.reported_rows += 1
    assert barrier.all_have_full_step(2)  # 63 steps of the others are known ahead
    assert reader.heartbeats == 2
