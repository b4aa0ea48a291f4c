"""A Python iterable runs in one thread, whichever threads read its blocks."""

from __future__ import annotations

import contextvars
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from distributed_input.api.proto import types_pb2
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.streams import own_thread
from distributed_input.worker.streams.own_thread import OwnThread, is_python
from tests.unit.distributed_input.worker.streams.blockcases import block_of


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], RowBlock]], RowBlock]]:
    """Return a function that calls another one in one of two threads, in turn."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        pools = [one, other]

        def call(function: Callable[[], RowBlock]) -> RowBlock:
            pools.reverse()
            return pools[0].submit(function).result(10)

        yield call


def test_objects_that_belong_to_a_thread_can_be_used(
    elsewhere: Callable[[Callable[[], RowBlock]], RowBlock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_thread, "_TURN_SECONDS", 0.0)
    number = contextvars.ContextVar("number", default=-1)
    closed = threading.Event()

    def start() -> Generator[RowBlock, None, None]:
        database = sqlite3.connect(":memory:")  # may be used in this thread only
        own = threading.local()
        try:
            for row in range(20):
                own.row = getattr(own, "row", -1) + 1
                number.set(number.get() + 1)
                database.execute("select 1")
                assert (own.row, number.get()) == (row, row)
                yield block_of(row, 1)
        finally:
            database.close()
            closed.set()

    blocks = OwnThread(start, "split-0")
    found = [elsewhere(blocks.__next__).first_row for _ in range(10)]
    assert found == list(range(10))
    assert not closed.is_set()
    blocks.close()
    assert closed.wait(10)
    with pytest.raises(StopIteration):
        next(blocks)


def test_an_error_comes_after_the_blocks_before_it_and_ends_the_thread() -> None:
    def start() -> Generator[RowBlock, None, None]:
        yield block_of(0, 1)
        yield block_of(1, 1)
        raise SystemExit("gone")

    blocks = OwnThread(start, "split-0")
    assert [next(blocks).first_row for _ in range(2)] == [0, 1]
    with pytest.raises(SystemExit, match="gone"):
        next(blocks)
    with pytest.raises(StopIteration):
        next(blocks)
    for thread in threading.enumerate():
        if thread.ident == blocks.thread:
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize("before", [0, 1])
def test_a_request_that_meets_the_end_of_the_thread_returns(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_thread, "_TURN_SECONDS", 0.0)
    blocks = OwnThread(lambda: (block_of(row, 1) for row in range(3)), "split-0")
    for _ in range(before):
        next(blocks)

    requests = blocks._may_run

    class Closing(SimpleQueue[bool]):
        """Close the blocks after `next` has checked that they are open."""

        def get(self, *_: object) -> bool:
            return requests.get()

        def put(self, value: bool, *_: object) -> None:
            if value:
                blocks.close()
            requests.put(value)

    blocks._may_run = Closing()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(next, blocks, None)
        try:
            assert reading.result(10) is None
        finally:
            blocks._made.put((StopIteration(), True))  # let the pool end


def test_nothing_runs_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_thread, "_TURN_SECONDS", 0.0)
    made = threading.Semaphore(0)

    def start() -> Generator[RowBlock, None, None]:
        while True:
            made.release()
            yield block_of(0, 1)

    blocks = OwnThread(start, "split-0")
    assert not blocks.thread
    for _ in range(3):
        next(blocks)
        assert made.acquire(timeout=10)
        assert not made.acquire(blocking=False)
    blocks.close()


def test_datasets_with_a_graph_need_no_thread_of_their_own() -> None:
    entry = types_pb2.EntryPoint(target="data:rows")
    assert is_python(types_pb2.Job(entry_point=entry))
    assert not is_python(types_pb2.Job(entry_point=entry, definitions=[1]))
    assert not is_python(types_pb2.Job(dataset_id="d"))
