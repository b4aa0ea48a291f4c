"""A connection sends the rows of all its streams in order, within the credit of each.

This module is long because all tests of one module are in one file.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Generator, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import DatasetFnError, ProtocolError, UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link.blocks import frames
from distributed_input.link.blocks import sender as module
from distributed_input.link.blocks.frames import Frame
from distributed_input.link.blocks.open_streams import OpenStreams, StreamCounters
from distributed_input.link.blocks.sender import Connection
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import DIGEST_VERSION
from distributed_input.worker.streams import shared_producers
from distributed_input.worker.streams.running_split import RunningSplit
from distributed_input.worker.streams.shared_producers import SharedProducers
from distributed_input.worker.streams.shared_stream import SharedStream
from tests.unit.distributed_input.worker.streams.blockcases import (
    ROW,
    block_of,
    end_of,
    rows_in,
    state_of,
)
from tests.unit.distributed_input.worker.streams.pulled_stream import inline_pool

ONE = block_of(0, 1).cost

UNLIMITED = 1 << 62


class Splits:
    """Starts splits whose blocks have the given numbers of rows.

    Attributes:
        error: raised behind the rows of split 9.
        state: saved state that follows the first block.
        closed: splits that were closed before their end.
    """

    def __init__(self, sizes: Sequence[int] = (1,) * 5) -> None:
        self._sizes = sizes
        self.error: Exception | None = None
        self.state = b""
        self.closed: list[int] = []

    def start(self, request: worker_pb2.StreamRequest, _: StreamCounters) -> RunningSplit:
        return RunningSplit(request, functools.partial(self._blocks, request))

    def _blocks(self, request: worker_pb2.StreamRequest) -> Generator[RowBlock, None, None]:
        row = 0
        try:
            for size in self._sizes:
                yield block_of(row, size)
                if self.state and not row:
                    yield state_of(self.state)
                row += size
            if self.error is not None and request.split == 9:
                raise self.error
        except GeneratorExit:
            self.closed.append(request.split)
            raise
        yield end_of(row)


def request(split: int = 0, **fields: Any) -> worker_pb2.StreamRequest:
    job = types_pb2.Job(name="train", dataset_id="d", row_spec=ROW.to_json())
    values = {"protocol": PROTOCOL, "digest_version": DIGEST_VERSION, "ordinal": split, **fields}
    return worker_pb2.StreamRequest(job=job, split=split, **values)


def connection_of(splits: Splits, limit: int = 100) -> tuple[Connection, OpenStreams]:
    """Return a connection whose blocks are computed in the thread that requests them."""
    streams = OpenStreams(limit)
    return Connection(functools.partial(SharedStream, producers_of(splits)), streams), streams


def producers_of(splits: Splits) -> SharedProducers:
    return SharedProducers(splits.start, inline_pool(), 1 << 20)


def sent(connection: Connection) -> list[Frame]:
    """Return what the connection sends now, as it arrives."""
    found: list[Frame] = []
    while connection._queue:
        batch = connection._next_frames()
        if batch:
            found += frames.decode(frames.encode(batch))
    return found


def blocks_in(found: Sequence[Frame], number: int = 0) -> list[RowBlock]:
    return [block for frame in found if frame.stream == number for block in frame.blocks]


def credit_of(number: int, credit: int) -> worker_pb2.ConnectRequest:
    return worker_pb2.ConnectRequest(
        credits=[worker_pb2.StreamCredit(stream=number, credit=credit)]
    )


@given(
    st.lists(st.integers(1, 9), max_size=12),
    st.lists(st.integers(0, 2000), max_size=12),
)
def test_a_stream_has_at_most_one_block_more_than_its_credit(
    sizes: list[int], added: list[int]
) -> None:
    connection, streams = connection_of(Splits(sizes))
    rows, credit = sum(sizes), 0
    connection.open(0, request(), credit)
    received = blocks_in(sent(connection))
    largest = max((block_of(0, size).cost for size in sizes), default=0)
    for more in (*added, 1 << 20):
        credit += more
        connection.handle(credit_of(0, credit))
        received += blocks_in(sent(connection))
        cost = sum(block.cost for block in received)
        assert cost < credit + largest or not cost
        assert cost >= credit or received[-1].last, "it may send more"
    assert rows_in(received) == list(range(rows))
    assert [block.last for block in received] == [False] * (len(received) - 1) + [True]
    assert streams.count == 0


def test_a_stream_without_credit_produces_nothing() -> None:
    producers, streams = producers_of(Splits()), OpenStreams(1)
    connection = Connection(functools.partial(SharedStream, producers), streams)
    connection.open(0, request(), 0)
    assert not sent(connection)
    assert streams.count == 1
    assert producers.nbytes == 0


def test_a_lower_credit_changes_nothing() -> None:
    connection, _ = connection_of(Splits())
    connection.open(0, request(), 2 * ONE)
    sent(connection)
    connection.handle(credit_of(0, ONE))
    connection.handle(credit_of(0, 3 * ONE))
    assert rows_in(blocks_in(sent(connection))) == [3]


def test_rows_that_wait_are_sent_as_one_block() -> None:
    connection, _ = connection_of(Splits())
    connection.open(0, request(), UNLIMITED)
    received = blocks_in(sent(connection))
    assert [block.rows for block in received] == [5]
    assert received[0].last


def test_the_stream_that_is_read_first_is_sent_first(monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = connection_of(Splits([2]))
    for number, (epoch, ordinal) in enumerate([(0, 7), (1, 0), (0, 3), (0, 5)]):
        connection.open(number, request(number, epoch=epoch, ordinal=ordinal), UNLIMITED)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    batches = [connection._next_frames() for _ in range(4)]
    assert [[frame.stream for frame in batch or ()] for batch in batches] == [[2], [3], [0], [1]]


def test_streams_are_sent_together_up_to_the_size_of_a_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection, _ = connection_of(Splits([2]))
    for number in range(5):
        connection.open(number, request(number), UNLIMITED)
    monkeypatch.setattr(module, "BLOCK_BYTES", 2 * block_of(0, 2).cost)
    batches = [connection._next_frames() for _ in range(3)]
    assert [[frame.stream for frame in batch or ()] for batch in batches] == [[0, 1], [2, 3], [4]]


def test_a_stream_begins_while_another_one_has_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(shared_producers, "BLOCK_BYTES", 1)
    producers = producers_of(Splits([1] * 50))
    connection = Connection(functools.partial(SharedStream, producers), OpenStreams(2))
    connection.open(0, request(0), UNLIMITED)
    connection._next_frames()
    connection.open(1, request(1), UNLIMITED)
    connection._next_frames()
    assert len(producers._busy) == 2


def test_closing_a_stream_frees_what_it_holds() -> None:
    producers, streams = producers_of(Splits()), OpenStreams(2)
    connection = Connection(functools.partial(SharedStream, producers), streams)
    for number in range(2):
        connection.open(number, request(number), ONE)
    assert sent(connection)
    connection.handle(worker_pb2.ConnectRequest(close=[0, 1]))
    assert streams.count == 0
    assert not producers._busy


def test_nothing_is_sent_for_a_closed_stream() -> None:
    splits = Splits()
    splits.error = DatasetFnError("the disk is gone")
    connection, _ = connection_of(splits)
    for number, split in ((0, 0), (1, 9), (2, 2)):
        connection.open(number, request(split), UNLIMITED)
    connection.fail_all(UnavailableError("leaving"))
    connection.handle(worker_pb2.ConnectRequest(close=[0, 1]))
    connection.handle(credit_of(0, UNLIMITED))
    assert {frame.stream for frame in sent(connection)} == {2}


def test_an_error_comes_after_the_rows_before_it_and_ends_one_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    splits = Splits()
    splits.error = OSError("the disk is gone")
    connection, streams = connection_of(splits)
    connection.open(1, request(9), UNLIMITED)
    connection.open(2, request(2), 0)
    found = sent(connection)
    assert rows_in(blocks_in(found, 1)) == list(range(5))
    assert [frame.error is not None for frame in found] == [False] * (len(found) - 1) + [True]
    error = found[-1].error
    assert error is not None
    assert error.kind == "TerminalError"
    assert "OSError: the disk is gone" in error.message
    assert streams.failures == {"OSError": 1}
    assert streams.count == 1
    (entry,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert entry.exc_info
    assert entry.exc_info[2] is not None, "the traceback of the user's code"
    connection.handle(credit_of(2, UNLIMITED))
    assert rows_in(blocks_in(sent(connection), 2)) == list(range(5))


@pytest.mark.parametrize("reason", ["protocol", "limit", "draining"])
def test_a_refused_stream_gets_its_error_and_is_no_failure(reason: str) -> None:
    connection, streams = connection_of(Splits(), limit=0 if reason == "limit" else 1)
    wrong = request(protocol=PROTOCOL + 1000 if reason == "protocol" else PROTOCOL)
    if reason == "draining":
        streams.draining.set()
    connection.open(0, wrong, UNLIMITED)
    (frame,) = sent(connection)
    assert frame.error is not None
    kind = "ProtocolError" if reason == "protocol" else "UnavailableError"
    assert frame.error.kind == kind
    assert streams.failures == {}
    assert streams.count == 0
    assert not connection._streams


def test_a_worker_that_leaves_ends_all_streams() -> None:
    connection, streams = connection_of(Splits())
    connection.open(0, request(0), 0)
    connection.open(1, request(1), UNLIMITED)
    connection.fail_all(UnavailableError("leaving"))
    found = sent(connection)
    errors = [(frame.stream, frame.error.message) for frame in found if frame.error is not None]
    assert errors == [(0, "leaving"), (1, "leaving")]
    assert streams.idle.is_set()
    assert streams.failures == {}


def test_a_state_comes_after_the_rows_before_it() -> None:
    splits = Splits()
    splits.state = b"state"
    connection, _ = connection_of(splits)
    connection.open(0, request(), UNLIMITED)
    received = blocks_in(sent(connection))
    (at,) = [i for i, block in enumerate(received) if block.resume_token]
    assert received[at].resume_token == b"state"
    assert rows_in(received[:at])[:1] == [0]
    assert rows_in([block for block in received if block.buffers]) == list(range(5))


@given(st.integers(1, 12))
def test_no_stream_is_forgotten(count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", 3 * ONE)
        connection, streams = connection_of(Splits())
        for number in range(count):
            connection.open(number, request(number), 3 * ONE)
        found: list[Frame] = []
        for credit in (3 * ONE, UNLIMITED):
            for number in range(count):
                connection.handle(credit_of(number, credit))
            found += sent(connection)
        for number in range(count):
            assert rows_in(blocks_in(found, number)) == list(range(5))
        assert streams.count == 0


def test_requests_on_unknown_streams_are_ignored() -> None:
    connection, _ = connection_of(Splits())
    connection.handle(credit_of(7, UNLIMITED))
    connection.handle(worker_pb2.ConnectRequest(close=[7]))
    connection.open(0, request(), UNLIMITED)
    assert rows_in(blocks_in(sent(connection))) == list(range(5))
    connection.handle(credit_of(0, UNLIMITED))
    connection.handle(worker_pb2.ConnectRequest(close=[0]))
    assert not connection._queue


def test_a_number_in_use_and_too_many_streams_end_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream that another one replaced would stay open, and its place of the worker taken."""
    monkeypatch.setattr(module, "_MAX_STREAMS", 3)
    for numbers, message in (([1, 1], "stream 1 again"), ([1, 2, 3, 4], "more than 3 streams")):
        connection, streams = connection_of(Splits(), limit=2)
        opened = [worker_pb2.OpenStream(stream=one, request=request()) for one in numbers]
        with pytest.raises(ProtocolError, match=message):
            connection.handle(worker_pb2.ConnectRequest(open=opened))
        connection, streams = connection_of(Splits(), limit=2)
        connection.read([worker_pb2.ConnectRequest(open=opened)])
        assert streams.idle.is_set()
        assert connection._next_frames() is None


@pytest.mark.parametrize("change", ["sent", "failed", "closed"])
def test_a_stream_may_be_sent_or_closed_by_another_thread_while_it_is_opened(change: str) -> None:
    """Before the connection knows the stage."""
    streams, producers = OpenStreams(1), producers_of(Splits())
    found: list[Frame] = []

    def open_stage(*args: Any) -> SharedStream:
        stage = SharedStream(producers, *args)
        stage.wake()
        if change == "closed":
            connection.close()
            return stage
        if change == "failed":
            connection.fail_all(UnavailableError("leaving"))
        found.extend(connection._next_frames() or ())
        return stage

    connection = Connection(open_stage, streams)
    connection.open(0, request(), UNLIMITED)
    if change == "sent":
        found.extend(sent(connection))
        assert rows_in(blocks_in(found)) == list(range(5))
    else:
        assert not connection._streams
    assert streams.idle.is_set()
    assert not producers._busy


def test_a_connection_that_closes_while_a_stream_is_opened_counts_no_stream() -> None:
    """Before the thread that closes it sees that the stream was counted."""
    connection, streams = connection_of(Splits(), limit=1)
    enter = streams.enter

    def enter_and_close() -> StreamCounters:
        connection.close()
        return enter()

    streams.enter = enter_and_close
    connection.open(0, request(), UNLIMITED)
    assert streams.idle.is_set()
    assert not connection._streams


@pytest.mark.parametrize("breaks", [False, True])
def test_a_connection_closes_when_its_requests_end(breaks: bool) -> None:
    connection, streams = connection_of(Splits())

    def requests() -> Iterator[worker_pb2.ConnectRequest]:
        opened = worker_pb2.OpenStream(stream=0, request=request(), credit=1)
        yield worker_pb2.ConnectRequest(open=[opened])
        assert streams.count == 1
        if breaks:
            raise OSError("the connection is reset")

    connection.read(requests())
    assert streams.idle.is_set()
    assert not list(connection.frames())
    connection.open(1, request(), UNLIMITED)
    assert streams.idle.is_set()
