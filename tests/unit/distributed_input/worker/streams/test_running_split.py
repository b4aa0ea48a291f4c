"""A Python iterable runs in one thread, whichever threads read its blocks."""

from __future__ import annotations

import contextvars
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.streams import running_split
from distributed_input.worker.streams.running_split import OwnThread, is_python
from tests.unit.distributed_input.worker.streams.blockcases import block_of

REQUEST = worker_pb2.StreamRequest()


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
    monkeypatch.setattr(running_split, "_TURN_SECONDS", 0.0)
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

    blocks = OwnThread(REQUEST, start)
    found = [elsewhere(lambda: blocks.next(1)[0]).first_row for _ in range(10)]
    assert found == list(range(10))
    assert not closed.is_set()
    blocks.close()
    assert closed.wait(10)
    assert blocks.next(1) == ()


def test_the_blocks_of_a_turn_come_before_its_error_which_ends_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_split, "_TURN_SECONDS", 60.0)
    monkeypatch.setattr(running_split, "_TURN_BYTES", block_of(0, 2).nbytes)

    def start() -> Generator[RowBlock, None, None]:
        yield from (block_of(row, 1) for row in range(3))
        raise SystemExit("gone")

    blocks = OwnThread(REQUEST, start)
    found = [[(block.first_row, block.rows) for block in blocks.next(1)] for _ in range(2)]
    assert found == [[(0, 2)], [(2, 1)]]
    with pytest.raises(SystemExit, match="gone"):
        blocks.next(1)
    for thread in threading.enumerate():
        if thread.ident == blocks.thread:
            thread.join(10)
            assert not thread.is_alive()


def test_a_block_that_is_ready_does_not_wait_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_split, "_TURN_SECONDS", 60.0)
    may_go_on = threading.Event()

    def start() -> Generator[RowBlock, None, None]:
        yield block_of(0, 1)
        assert may_go_on.wait(10)
        yield block_of(1, 1)

    blocks = OwnThread(REQUEST, start)
    assert [block.first_row for block in blocks.next(1)] == [0]
    may_go_on.set()
    assert [block.first_row for block in blocks.next(1)] == [1]
    assert blocks.next(1) == ()


@pytest.mark.parametrize("before", [0, 1])
def test_a_request_that_meets_the_end_of_the_thread_returns(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_split, "_TURN_SECONDS", 0.0)
    blocks = OwnThread(REQUEST, lambda: (block_of(row, 1) for row in range(3)))
    for _ in range(before):
        blocks.next(1)

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
        reading = pool.submit(blocks.next, 1)
        try:
            assert reading.result(10) == ()
        finally:
            blocks._made.put(())  # let the pool end


def test_nothing_runs_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_split, "_TURN_SECONDS", 0.0)
    made = threading.Semaphore(0)

    def start() -> Generator[RowBlock, None, None]:
        while True:
            made.release()
            yield block_of(0, 1)

    blocks = OwnThread(REQUEST, start)
    assert not blocks.thread
    for _ in range(3):
        blocks.next(1)
        assert made.acquire(timeout=10)
        assert not made.acquire(blocking=False)
    blocks.close()


def test_datasets_with_a_graph_need_no_thread_of_their_own() -> None:
    entry = types_pb2.EntryPoint(target="data:rows")
    assert is_python(types_pb2.Job(entry_point=entry))
    assert not is_python(types_pb2.Job(entry_point=entry, definitions=[1]))
    assert not is_python(types_pb2.Job(dataset_id="d"))
