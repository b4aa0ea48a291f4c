"""The connection to a worker: its streams, their credits and errors, and direct connections.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from distributed_input.api.errors import DatasetFnError, DistributedInputError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks import direct_reader, frames
from distributed_input.link.blocks.direct_reader import DirectTransfer
from distributed_input.link.blocks.frames import Frame
from distributed_input.link.blocks.message_socket import MessageSocket
from distributed_input.link.blocks.reader import SplitCall, WorkerConnection
from distributed_input.rows.blocks import RowBlock
from tests.unit.distributed_input.sidecar.streams.given_workers import block_at
from tests.unit.distributed_input.sidecar.streams.streaming import (
    SECONDS,
)
from tests.unit.distributed_input.sidecar.system import eventually

UNAVAILABLE = worker_pb2.StreamError(kind="UnavailableError", message="it is leaving")


class BrokenError(grpc.RpcError):
    """The error of a call whose connection broke, or that the worker ended with an error."""

    def __init__(self, *metadata: tuple[str, str]) -> None:
        self._metadata = metadata

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection reset"

    def trailing_metadata(self) -> Any:
        return self._metadata


grpc.Call.register(BrokenError)


class GivenCall:
    """The call of a connection, which brings what the test gives it.

    Attributes:
        requests: what the sidecar sends.
        cancelled: whether the sidecar has ended it.
    """

    def __init__(self, requests: Iterator[worker_pb2.ConnectRequest]) -> None:
        self.requests = requests
        self.cancelled = False
        self._callbacks: list[Callable[[GivenCall], None]] = []
        self._events: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()

    def send(self, *sent: Frame) -> None:
        self._events.put(frames.encode(sent))

    def send_control(self, **fields: Any) -> None:
        self._events.put(worker_pb2.ConnectResponse(**fields).SerializeToString())

    def end(self, event: bytes | Exception | None = None) -> None:
        self._events.put(event)
        for callback in self._callbacks:
            callback(self)

    def cancel(self) -> None:
        self.cancelled = True
        self.end()

    def add_done_callback(self, callback: Callable[[GivenCall], None]) -> None:
        self._callbacks.append(callback)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        event = self._events.get()
        if event is None:
            raise StopIteration
        if isinstance(event, Exception):
            raise event
        return event


class Receiver:
    """Records what it gets.

    Attributes:
        blocks: first row of each block.
        errors: each error, and whether the worker has explained it.
        failed: is set after the first error.
    """

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.errors: list[tuple[DistributedInputError, bool]] = []
        self.calls: list[SplitCall] = []
        self.failed = threading.Event()

    def receive(self, call: SplitCall, block: RowBlock) -> None:
        self.calls.append(call)
        self.blocks.append(block.first_row)

    def fail(self, call: SplitCall, error: DistributedInputError, explained: bool) -> None:
        self.calls.append(call)
        self.errors.append((error, explained))
        self.failed.set()


class Connected:
    """A connection, and the worker's side of it."""

    def __init__(self, direct: DirectTransfer | None = None) -> None:
        calls: list[GivenCall] = []

        class Stub:
            def Connect(self, requests: Any) -> GivenCall:  # noqa: N802
                calls.append(GivenCall(requests))
                return calls[-1]

        stub: Any = Stub()
        self.connection = WorkerConnection(stub, "w", direct)
        (self.call,) = calls

    def open(self, split: int = 0, credit: int = 100) -> tuple[SplitCall, Receiver]:
        receiver = Receiver()
        request = worker_pb2.StreamRequest(split=split)
        return self.connection.open(request, credit, receiver), receiver

    def request(self) -> worker_pb2.ConnectRequest:
        """Return the next request, which must be there."""
        assert self.connection._has_pending, "the worker is told nothing"
        return next(self.call.requests)

    @property
    def is_idle(self) -> bool:
        return not self.connection._has_pending


@pytest.fixture
def connected() -> Iterator[Connected]:
    connected = Connected()
    yield connected
    connected.call.end()
    eventually(lambda: connected.connection.is_broken)


def rows(number: int, first: int, last: bool = False) -> Frame:
    return Frame(number, [block_at(first, 2, last)])


def test_new_streams_are_opened_in_one_message(connected: Connected) -> None:
    for split in (5, 6, 7):
        connected.open(split, credit=10 * split)
    opened = [(one.stream, one.request.split, one.credit) for one in connected.request().open]
    assert opened == [(1, 5, 50), (2, 6, 60), (3, 7, 70)]
    assert connected.is_idle
    connected.open(8)
    assert [one.stream for one in connected.request().open] == [4]


def test_each_stream_gets_its_blocks_in_order(connected: Connected) -> None:
    calls, receivers = zip(*(connected.open() for _ in range(2)), strict=True)
    connected.call.send(rows(2, 0), rows(1, 10), rows(2, 2))
    connected.call.send(rows(1, 12), rows(2, 4))
    eventually(lambda: len(receivers[1].blocks) == 3)
    assert [one.blocks for one in receivers] == [[10, 12], [0, 2, 4]]
    assert [set(one.calls) for one in receivers] == [{call} for call in calls]


def test_credits_that_follow_each_other_are_sent_together(connected: Connected) -> None:
    first, second = connected.open()[0], connected.open()[0]
    connected.request()
    for credit in range(200, 300):
        first.grant(credit)
        second.grant(2 * credit)
    request = connected.request()
    assert {one.stream: one.credit for one in request.credits} == {1: 299, 2: 598}
    assert len(request.credits) == 2
    assert connected.is_idle
    second.grant(700)
    assert [(one.stream, one.credit) for one in connected.request().credits] == [(2, 700)]


def test_a_closed_stream_gets_nothing_and_no_credit(connected: Connected) -> None:
    (call, receiver), (_, other) = connected.open(), connected.open()
    connected.request()
    call.grant(300)
    call.close()
    request = connected.request()
    assert (list(request.close), len(request.credits)) == ([1], 0)
    call.close()
    call.grant(400)
    assert connected.is_idle, "it is closed once"
    connected.call.send(rows(1, 0), Frame(1, error=UNAVAILABLE), rows(2, 7))
    eventually(lambda: 7 in other.blocks)
    assert (receiver.blocks, receiver.errors) == ([], [])
    assert (other.blocks, other.errors) == ([7], [])


def test_a_stream_that_is_closed_before_the_worker_knows_it_is_not_opened(
    connected: Connected,
) -> None:
    """A worker that reads `close` before `open` would compute a stream that nobody reads."""
    calls = [connected.open()[0] for _ in range(3)]
    calls[1].close()
    request = connected.request()
    assert [one.stream for one in request.open] == [1, 3]
    assert not request.close
    calls[0].close()
    assert list(connected.request().close) == [1]


def test_a_stream_ends_with_its_last_block(connected: Connected) -> None:
    call, receiver = connected.open()
    connected.request()
    connected.call.send(rows(1, 0), rows(1, 2, last=True), rows(1, 4))
    eventually(lambda: len(receiver.blocks) == 2)
    call.grant(300)
    call.close()
    assert connected.is_idle, "the worker knows the end"
    connected.call.end(BrokenError())
    eventually(lambda: connected.connection.is_broken)
    assert (receiver.blocks, receiver.errors) == ([0, 2], [])


def test_the_error_of_a_stream_ends_only_this_stream(connected: Connected) -> None:
    (call, receiver), (_, other) = connected.open(), connected.open()
    connected.request()
    error = worker_pb2.StreamError(kind="DatasetFnError", message="a bad row")
    connected.call.send(Frame(1, error=error), rows(1, 0), rows(2, 0))
    eventually(lambda: other.blocks)
    ((found, explained),) = receiver.errors
    assert (type(found), str(found), explained) == (DatasetFnError, "worker w: a bad row", True)
    assert (receiver.calls, receiver.blocks, other.errors) == ([call], [], [])
    call.close()
    assert connected.is_idle
    assert not connected.connection.is_broken


@pytest.mark.parametrize(
    ("event", "text", "explained"),
    [
        (BrokenError(), "UNAVAILABLE: connection reset", False),
        (BrokenError(("distributed-input-error", "UnavailableError")), "connection reset", True),
        (None, "it ended the connection", False),
        (b"\xff", "not a message of a connection", True),
    ],
)
def test_the_end_of_the_connection_fails_each_stream_once(
    connected: Connected, event: Any, text: str, explained: bool
) -> None:
    receivers = [connected.open()[1] for _ in range(3)]
    connected.request()
    connected.call.end(event)
    connected.call.send(rows(1, 0))
    eventually(lambda: all(one.errors for one in receivers))
    for receiver in receivers:
        ((error, is_explained),) = receiver.errors
        assert isinstance(error, UnavailableError)
        assert f"worker w: {text}" in str(error)
        assert is_explained == explained
        assert not receiver.blocks
    assert connected.connection.is_broken
    assert connected.call.cancelled


def test_a_stream_of_a_connection_that_has_broken_fails_in_another_thread(
    connected: Connected,
) -> None:
    connected.call.end(BrokenError())
    eventually(lambda: connected.connection.is_broken)
    lock = threading.Lock()

    class Locked(Receiver):
        def fail(self, call: SplitCall, error: DistributedInputError, explained: bool) -> None:
            with lock:
                super().fail(call, error, explained)

    receiver = Locked()
    with lock:
        call = connected.connection.open(worker_pb2.StreamRequest(), 1, receiver)
        assert not receiver.failed.is_set()
    assert receiver.failed.wait(SECONDS)
    ((error, explained),) = receiver.errors
    assert (receiver.calls, explained) == ([call], False)
    assert "connection reset" in str(error)
    call.grant(5)
    call.close()


def test_nothing_is_left_of_a_connection_that_has_broken() -> None:
    connected = Connected()
    ended = threading.Event()

    def read() -> None:
        for _ in connected.call.requests:
            pass
        ended.set()

    def readers() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "worker-w"]

    threading.Thread(target=read, daemon=True).start()
    connected.open()
    (reader,) = readers()
    assert reader.daemon, "a worker that hangs does not keep the sidecar alive"
    connected.call.end(BrokenError())
    assert ended.wait(SECONDS), "the requests end, so gRPC's thread ends"
    eventually(lambda: not readers())


# With a direct connection.


class Moved:
    """A connection that offers a direct one, and the worker's side of both."""

    def __init__(self) -> None:
        self.direct = DirectTransfer("127.0.0.1:1")
        self.connected = Connected(self.direct)
        self.call = self.connected.call
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(SECONDS)
        self._ends: list[MessageSocket] = []

    def offer(self) -> None:
        port = self._listener.getsockname()[1]
        self.call.send_control(offer=worker_pb2.TransferOffer(port=port, ticket=b"ticket"))

    def accept(self) -> MessageSocket:
        accepted, _ = self._listener.accept()
        assert accepted.recv(6, socket.MSG_WAITALL) == b"ticket"
        self._ends.append(MessageSocket(accepted))
        return self._ends[-1]

    def move(self) -> MessageSocket:
        """Return the worker's end of the direct connection, which the worker has moved to."""
        self.offer()
        direct = self.accept()
        self.call.send_control(moved=True)
        return direct

    def close(self) -> None:
        self.call.end()
        eventually(lambda: self.connected.connection.is_broken)
        for one in (self.direct, self._listener, *self._ends):
            one.close()


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Moved]:
    monkeypatch.setattr(direct_reader, "_CALL_SECONDS", 0.1)
    moving = Moved()
    yield moving
    moving.close()


def test_rows_come_over_the_direct_connection_after_those_before(moving: Moved) -> None:
    _, receiver = moving.connected.open()
    moving.offer()
    direct = moving.accept()
    moving.call.send(rows(1, 0))
    direct.send(frames.encoded_pieces([rows(1, 4)]))  # it is there first, but not in order
    moving.call.send(rows(1, 2))
    moving.call.send_control(moved=True)
    direct.send(frames.encoded_pieces([rows(1, 6), rows(1, 8)]))
    eventually(lambda: len(receiver.blocks) == 5)
    assert (receiver.blocks, receiver.errors) == ([0, 2, 4, 6, 8], [])


def test_an_offer_is_not_used_if_only_grpc_is_allowed(connected: Connected) -> None:
    _, receiver = connected.open()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connected.call.send_control(offer=worker_pb2.TransferOffer(port=port, ticket=b"t"))
        connected.call.send(rows(1, 0))
        eventually(lambda: receiver.blocks)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_a_direct_connection_that_breaks_fails_each_stream_once(moving: Moved) -> None:
    receivers = [moving.connected.open()[1] for _ in range(2)]
    direct = moving.move()
    direct.send(frames.encoded_pieces([rows(1, 0)]))
    eventually(lambda: receivers[0].blocks)
    direct.close()
    eventually(lambda: all(one.errors for one in receivers))
    for receiver in receivers:
        ((error, explained),) = receiver.errors
        assert isinstance(error, UnavailableError)
        assert str(error) == "worker w: the direct connection broke: it was closed"
        assert explained, "the worker is not lost"
    assert moving.call.cancelled
    assert moving.direct.failed_at > 0
    assert moving.direct._socket is not None
    assert moving.direct._socket._socket.fileno() == -1


def test_a_worker_that_cannot_be_reached_is_abandoned(moving: Moved) -> None:
    receivers = [moving.connected.open()[1] for _ in range(2)]
    direct = moving.move()
    before = moving.connected.connection.received_at
    direct.send(frames.encoded_pieces([rows(1, 0)]))
    eventually(lambda: receivers[0].blocks)
    assert moving.connected.connection.received_at > before
    error = UnavailableError("its host does not answer")
    moving.connected.connection.abandon(error)
    assert [one.errors for one in receivers] == [[(error, False)]] * 2
    eventually(lambda: moving.direct._socket and moving.direct._socket._socket.fileno() == -1)
    assert moving.call.cancelled
    assert moving.direct.failed_at == float("-inf"), "the direct connection is not the cause"
    _, later = moving.connected.open()
    assert later.failed.wait(10)
    assert later.errors == [(error, False)]


def test_something_else_than_messages_fails_the_streams(moving: Moved) -> None:
    _, receiver = moving.connected.open()
    moving.move().send([b"something else"])
    assert receiver.failed.wait(SECONDS)
    assert "not a message of a connection" in str(receiver.errors[0][0])
    assert moving.direct.failed_at > 0


@pytest.mark.parametrize(
    ("event", "text", "failed"),
    [
        (BrokenError(("distributed-input-error", "UnavailableError")), "connection reset", True),
        (BrokenError(), "connection reset", False),
        (None, "it ended the connection", False),
    ],
)
def test_the_status_of_the_call_decides_the_error(
    moving: Moved, event: Exception | None, text: str, failed: bool
) -> None:
    """The worker's own error means that it could not send on the direct connection."""
    _, receiver = moving.connected.open()
    direct = moving.move()
    direct.send(frames.encoded_pieces([rows(1, 0)]))
    eventually(lambda: receiver.blocks)
    moving.call.end(event)
    assert receiver.failed.wait(SECONDS)
    ((error, explained),) = receiver.errors
    assert text in str(error)
    assert explained == failed
    assert (moving.direct.failed_at > 0) == failed


def test_a_bug_of_a_receiver_is_reported(connected: Connected) -> None:
    class Faulty(Receiver):
        def receive(self, call: SplitCall, block: RowBlock) -> None:
            raise ZeroDivisionError

    receiver = Faulty()
    connected.connection.open(worker_pb2.StreamRequest(), 1, receiver)
    connected.call.send(rows(1, 0))
    assert receiver.failed.wait(SECONDS)
    assert "the sidecar failed: ZeroDivisionError" in str(receiver.errors[0][0])
