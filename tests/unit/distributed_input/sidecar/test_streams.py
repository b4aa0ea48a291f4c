"""The stages of a sidecar obey the laws of all stages."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.proto import trainer_pb2, types_pb2, worker_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import Server
from distributed_input.order import identity
from distributed_input.order.share import share_of
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.rows.stage import Stage
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.epoch_steps import EpochSteps
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.streams.partition_reader import PartitionPosition, PartitionReader
from distributed_input.sidecar.streams.read_ahead import ReadAhead
from distributed_input.sidecar.streams.split_stream import SplitStream
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input import stage_laws
from tests.unit.distributed_input.sidecar.steps.trainers import WaitingTrainer
from tests.unit.distributed_input.sidecar.streams.streaming import SECONDS, context, info, serve
from tests.unit.distributed_input.sidecar.system import Worker

SPLITS, ROWS = 3, 12  # rows of a split
FAILING = 1 << 20  # no row is there


class Digested(Worker):
    """Rows with digests. A stream checks the prefix of its request, as a real worker does.

    Attributes:
        fails_at: the row of each split from which on its block fails.
        checked: number of streams that had a prefix to check.
    """

    fails_at = FAILING
    checked = 0

    def __init__(self) -> None:
        super().__init__(SPLITS * ROWS)

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        known = Prefix().extend(digests(request.split, 0, request.prefix_rows))
        differs = request.check_prefix and known.digest != request.prefix_digest
        self.checked += request.check_prefix
        for at in range(request.start_row, ROWS, 5):
            rows = np.arange(at, min(at + 5, ROWS)) + 100 * request.split
            if rows[-1] % 100 >= self.fails_at:
                raise DatasetFnError("row cannot be read")
            before = Prefix().extend(digests(request.split, 0, at))
            data = rows.astype(np.int64).view(np.uint8)
            own = digests(request.split, at, len(rows))
            yield encoded(at, data, own, before, prefix_differs=differs)
        before = Prefix().extend(digests(request.split, 0, ROWS))
        nothing = np.zeros(0, np.uint64)
        yield encoded(ROWS, nothing.view(np.uint8), nothing, before, differs, last=True)


def encoded(
    first: int,
    data: Any,
    own: Any,
    before: Prefix,
    prefix_differs: bool,
    last: bool = False,
) -> bytes:
    return blocks.encode(
        RowBlock(
            first,
            len(own),
            (data,),
            own,
            last=last,
            prefix_digest=before.digest,
            prefix_differs=prefix_differs,
        )
    )


def digests(split: int, first: int, rows: int) -> Any:
    return (np.arange(first, first + rows, dtype=np.uint64) + np.uint64(1000 * split + 7)) ** 3


class Chain:
    """What the stages of one kind are made of. `open` returns one that stands at a state.

    Attributes:
        context: what guards the stage, and wakes those that wait for rows.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self.context = context(pool, splits=SPLITS, timeout=SECONDS)

    def open(self, state: Any) -> Stage[Any]:
        raise NotImplementedError

    def take(self, stage: Stage[Any], rows: int) -> list[int]:
        """Return the next rows; fewer at the end."""
        found: list[int] = []
        with self.context.lock:
            while len(found) < rows and not self.ended(stage):
                for block in stage.next(rows - len(found)):
                    found += [int(row) for row in block.buffers[0].view(np.int64)]
                if len(found) < rows and not self.ended(stage):
                    assert self.context.arrived.wait(SECONDS)
        return found

    def ended(self, stage: Any) -> bool:
        return bool(stage.ended)

    def state(self, stage: Stage[Any]) -> Any:
        with self.context.lock:
            return stage.state()

    def close(self, stage: Stage[Any]) -> None:
        with self.context.lock:
            stage.close()


class Split(Chain):
    def open(self, state: Prefix | None) -> SplitStream:
        with self.context.lock:
            split = self.context.plan.deal[0][0]
            return SplitStream(self.context, split, 0, state.rows if state else 0, state)

    def ended(self, stage: Any) -> bool:
        return bool(stage.exhausted)


class Partition(Chain):
    def open(self, state: PartitionPosition | None) -> PartitionReader:
        with self.context.lock:
            deal = self.context.plan.deal[0]
            return PartitionReader(self.context, deal, state or PartitionPosition())


class Steps(Chain):
    """The steps of one consumer, which wait themselves."""

    def __init__(self, pool: WorkerPool) -> None:
        super().__init__(pool)
        job = types_pb2.Job()
        job.CopyFrom(self.context.plan.job)
        job.global_batch_size = 1
        self._share = share_of(job, 0, 1)
        exchange: Any = SimpleNamespace(next_heartbeat=1)
        stats = self.context.stats
        self._source = RowSource(
            job, pool, PartitionFacts(), exchange, stats, ReadAhead(1), SECONDS
        )

    def open(self, state: trainer_pb2.Position | None) -> EpochSteps:
        reader = EpochReader(self._source, self._share, 0, WaitingTrainer())
        return EpochSteps.open(reader, self._share, state)

    def take(self, stage: Any, rows: int) -> list[int]:
        found: list[int] = []
        for _ in range(rows):  # steps of one row
            row = [int(row) for block in stage.next(1) for row in block.buffers[0].view(np.int64)]
            stage.done += len(row)
            found += row
        return found

    def state(self, stage: Stage[Any]) -> Any:
        position = stage.state()
        identity.stamp(position, self._source.job)
        return position

    def close(self, stage: Stage[Any]) -> None:
        stage.close()


KINDS = [Split, Partition, Steps]
ALL = {Split: ROWS, Partition: SPLITS * ROWS, Steps: SPLITS * ROWS}


@pytest.fixture(scope="module")
def worker() -> Iterator[tuple[Digested, Server]]:
    worker = Digested()
    server = serve(worker)
    yield worker, server
    server.stop(0)


@pytest.fixture(scope="module")
def pool(worker: tuple[Digested, Server]) -> Iterator[WorkerPool]:
    pool = WorkerPool(Credentials())
    pool.update([info("worker", worker[1])])
    yield pool
    pool.close()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(0, 15), max_size=4))
def test_a_stage_that_stopped_anywhere_and_was_restored_has_the_rest(
    worker: tuple[Digested, Server], pool: WorkerPool, kind: type[Chain], stops: list[int]
) -> None:
    checked = worker[0].checked
    chain = kind(pool)
    stage_laws.check_restored_anywhere(chain, stops, ALL[kind])
    assert chain.context.stats.mismatches == 0
    if stops and 0 < stops[0] < ROWS:
        assert worker[0].checked > checked


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_is_closed_twice_and_keeps_its_state(pool: WorkerPool, kind: type[Chain]) -> None:
    stage_laws.check_closed_twice(kind(pool), ALL[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_raises_its_error_again_and_its_state_has_the_rest(
    worker: tuple[Digested, Server],
    pool: WorkerPool,
    kind: type[Chain],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chain = kind(pool)
    monkeypatch.setattr(worker[0], "fails_at", 5)
    failed = stage_laws.take_until_error(chain, 5)
    monkeypatch.setattr(worker[0], "fails_at", FAILING)
    stage_laws.check_rest(chain, *failed, ALL[kind])
