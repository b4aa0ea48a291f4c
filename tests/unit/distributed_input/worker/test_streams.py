"""The stages of a worker obey the laws of all stages, and a shared stream never waits."""

from __future__ import annotations

import functools
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.rows.stage import Stage
from distributed_input.worker.compute.compute_pool import ComputePool
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.datasets.split_opener import SplitSources
from distributed_input.worker.store.block_store import BlockStore
from distributed_input.worker.streams.running_split import OwnThread, RunningSplit
from distributed_input.worker.streams.shared_producers import SharedProducers
from distributed_input.worker.streams.shared_stream import SharedStream
from distributed_input.worker.streams.split_blocks import split_blocks
from tests.unit.distributed_input import stage_laws
from tests.unit.distributed_input.worker.streams.blockcases import ROW, rows_in
from tests.unit.distributed_input.worker.streams.pulled_stream import inline_pool

ROWS = 40
SECONDS = 20.0


class Source:
    """The dataset of a split.

    Attributes:
        fails_at: the row that cannot be read.
        gate: the rows wait for it.
    """

    def __init__(self) -> None:
        self.fails_at = ROWS
        self.gate = threading.Event()
        self.gate.set()

    def _elements(self) -> Iterator[Any]:
        for row in range(0, ROWS, 5):
            assert self.gate.wait(SECONDS)
            if row == self.fails_at:
                raise OSError("row cannot be read")
            yield {"id": np.arange(row, row + 5)}

    def blocks(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters
    ) -> Generator[RowBlock, None, None]:
        yield from split_blocks(request, SplitIterator(self._elements(), ROW, True), counters)


class Running:
    """A split that runs. Its blocks may have more rows than are taken."""

    kind = RunningSplit

    def __init__(self) -> None:
        self.source = Source()

    def start(self, request: worker_pb2.StreamRequest, counters: StreamCounters) -> RunningSplit:
        return self.kind(request, functools.partial(self.source.blocks, request, counters))

    def open(self, state: Prefix | None) -> Stage[Prefix]:
        return self.open_request(request_of(state or Prefix()))

    def open_request(self, request: worker_pb2.StreamRequest) -> Stage[Prefix]:
        return self.start(request, StreamCounters())

    def take(self, stage: Stage[Prefix], rows: int) -> list[int]:
        found: list[RowBlock] = []
        while sum(block.rows for block in found) < rows and not (found and found[-1].last):
            found += self.next(stage)
        assert not any(block.prefix_differs for block in found)
        return rows_in(found)

    def next(self, stage: Stage[Prefix]) -> list[RowBlock]:
        return list(stage.next(1))

    def state(self, stage: Stage[Prefix]) -> Prefix:
        return stage.state()

    def close(self, stage: Stage[Prefix]) -> None:
        stage.close()


class InOwnThread(Running):
    """A split that runs in a thread of its own."""

    kind = OwnThread


class Shared(Running):
    """Streams that share one producer, which the thread that reads runs."""

    pool: Callable[[], Any] = staticmethod(inline_pool)

    def __init__(self) -> None:
        super().__init__()
        self.woken = threading.Event()
        self.producers = SharedProducers(self.start, self.pool(), 1 << 20)

    def open_request(self, request: worker_pb2.StreamRequest) -> Stage[Prefix]:
        return SharedStream(self.producers, request, StreamCounters(), self.woken.set)

    def next(self, stage: Stage[Prefix]) -> list[RowBlock]:
        self.woken.clear()
        found = list(stage.next(1))
        assert found or self.woken.wait(SECONDS)
        return found


class Pooled(Shared):
    """Streams that share one producer, which threads of the pool run."""

    pool = staticmethod(functools.partial(ComputePool, 1))


class Stored(Running):
    """A split that is stored once it was read to its end."""

    def __init__(self) -> None:
        super().__init__()
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder)
        self.store = BlockStore(Path(folder), 1 << 20)

    def start(self, request: worker_pb2.StreamRequest, counters: StreamCounters) -> RunningSplit:
        assert self.store.flush(SECONDS)
        compute, sources = self.source.blocks, SplitSources((), True)
        arguments = request, counters, compute, lambda _: sources
        return self.kind(request, functools.partial(self.store.blocks, *arguments))


KINDS = [Running, InOwnThread, Shared, Pooled, Stored]


def request_of(state: Prefix) -> worker_pb2.StreamRequest:
    return worker_pb2.StreamRequest(
        job=types_pb2.Job(name="train", dataset_id="d", row_spec=ROW.to_json()),
        start_row=state.rows,
        prefix_rows=state.rows,
        prefix_digest=state.digest,
        check_prefix=state.rows > 0,
    )


@pytest.mark.parametrize("kind", KINDS)
@given(stops=st.lists(st.integers(0, 15), max_size=4))
def test_a_stage_that_stopped_anywhere_and_was_restored_has_the_rest(
    kind: type[Running], stops: list[int]
) -> None:
    stage_laws.check_restored_anywhere(kind(), stops, ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_is_closed_twice_and_keeps_its_state(kind: type[Running]) -> None:
    stage_laws.check_closed_twice(kind(), ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_raises_its_error_again_and_its_state_has_the_rest(kind: type[Running]) -> None:
    chain = kind()
    chain.source.fails_at = 10
    failed = stage_laws.take_until_error(chain, 10)
    chain.source.fails_at = ROWS
    stage_laws.check_rest(chain, *failed, ROWS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_stage_has_no_more_rows(kind: type[Running]) -> None:
    chain = kind()
    stage = chain.open(None)
    chain.take(stage, 5)
    stage.close()
    assert not stage.next(1)


def test_a_stream_whose_split_gives_nothing_returns_at_once_and_wakes_its_reader() -> None:
    chain = Pooled()
    chain.source.gate.clear()
    streams = [chain.open(None) for _ in range(2)]
    assert [list(stream.next(1)) for stream in streams] == [[], []]
    assert not chain.woken.is_set()
    chain.source.gate.set()
    assert [chain.take(stream, ROWS) for stream in streams] == [list(range(ROWS))] * 2
