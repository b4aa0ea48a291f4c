from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.runtime.message_socket import MessageSocket
from distributed_input.sidecar.streams import direct_transfer
from distributed_input.sidecar.streams.direct_transfer import DirectTransfer
from tests.unit.distributed_input.sidecar.system import eventually

SECONDS = 10.0
TICKET = bytes(range(32))
LOG = "distributed_input.sidecar.transfer"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        yield listener


def offer_at(port: int) -> worker_pb2.TransferOffer:
    return worker_pb2.TransferOffer(port=port, ticket=TICKET)


def offer_of(listener: socket.socket) -> worker_pb2.TransferOffer:
    return offer_at(listener.getsockname()[1])


def accept(listener: socket.socket) -> socket.socket:
    """Return the worker's end of a connection that has sent its ticket."""
    connected, _ = listener.accept()
    connected.settimeout(SECONDS)
    assert connected.recv(len(TICKET), socket.MSG_WAITALL) == TICKET
    return connected


def is_ended(connected: socket.socket) -> bool:
    """Wait until the sidecar ends a connection. Return whether it sent nothing."""
    with connected:
        return connected.recv(1) == b""


def wait_for_connecting() -> None:
    """Wait until no thread connects."""
    eventually(lambda: not any(one.name == "transfer-connect" for one in threading.enumerate()))


class Receiving:
    """Receives messages of a worker in a thread, as the reader of a connection does.

    Args:
        direct: the sidecar's end of the connection.
        handle: takes each message; None: a copy goes to `messages`.
    """

    def __init__(
        self, direct: DirectTransfer, handle: Callable[[memoryview], None] | None = None
    ) -> None:
        self.messages: list[bytes] = []
        self._handle = handle or (lambda data: self.messages.append(bytes(data)))
        self.errors: list[Exception] = []
        self._direct = direct
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._direct.receive_all(self._handle)
        except (UnavailableError, ValueError) as error:
            self.errors.append(error)

    @property
    def has_ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join(SECONDS)
        assert self.has_ended


@contextlib.contextmanager
def moved(listener: socket.socket) -> Iterator[tuple[DirectTransfer, MessageSocket]]:
    """Yield both ends of a direct connection."""
    direct = DirectTransfer("127.0.0.1")
    direct.connect(offer_of(listener))
    worker = MessageSocket(accept(listener))
    try:
        yield direct, worker
    finally:
        worker.close()
        direct.close()


def test_messages_of_the_worker_are_passed_on_until_the_call_ends(listener: socket.socket) -> None:
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        for data in (b"a", b"", b"bc"):
            worker.send([data])
        eventually(lambda: len(receiving.messages) == 3)
        assert not receiving.has_ended
        direct.end()
        receiving.wait()
    assert (receiving.messages, receiving.errors) == ([b"a", b"", b"bc"], [])


@pytest.mark.parametrize("ends_first", [True, False])
def test_the_end_of_the_call_is_no_error_of_the_connection(
    listener: socket.socket, ends_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that ends the call also ends the connection, in either order."""
    monkeypatch.setattr(direct_transfer, "_CALL_SECONDS", 10 * SECONDS)
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        worker.send([b"a"])
        eventually(lambda: receiving.messages)
        if ends_first:
            direct.end()
        worker.close()
        if not ends_first:
            direct.end()
        receiving.wait()
    assert receiving.errors == []


def test_a_connection_that_breaks_while_the_call_lives_is_an_error(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_transfer, "_CALL_SECONDS", 0.1)
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        worker.close()
        receiving.wait()
    (error,) = receiving.errors
    assert isinstance(error, UnavailableError)
    assert str(error) == "the direct connection broke: it was closed"


def test_the_error_has_the_cause(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_transfer, "_CALL_SECONDS", 0.1)
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        worker._socket.sendall(b"abc")  # a part of a length
        worker.close()
        receiving.wait()
    assert str(receiving.errors[0]).endswith("broke: the connection ended within a message")


def test_something_else_than_messages_is_an_error(listener: socket.socket) -> None:
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        worker._socket.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        receiving.wait()
    assert isinstance(receiving.errors[0], ValueError)


def test_the_time_of_a_failure_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1234.5)
    direct = DirectTransfer("127.0.0.1")
    assert direct.failed_at == float("-inf")
    direct.record_failure()
    assert direct.failed_at == 1234.5


def test_a_port_that_is_closed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        offer = offer_of(closed)
    direct = DirectTransfer("127.0.0.1")
    with caplog.at_level(logging.INFO, LOG):
        direct.connect(offer)
        wait_for_connecting()
    direct.close()
    (record,) = caplog.records
    assert record.getMessage() == "no direct connection to a worker: its rows use gRPC"
    assert direct.failed_at == float("-inf"), "the next connection tries again"


def test_an_unreachable_port_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a firewall dropped the packets: the listener's queue is full."""
    monkeypatch.setattr(direct_transfer, "_CONNECT_SECONDS", 0.2)
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        direct = DirectTransfer("127.0.0.1")
        with caplog.at_level(logging.INFO, LOG):
            direct.connect(offer_of(full))
            wait_for_connecting()
        direct.close()
    assert [record.getMessage()[:20] for record in caplog.records] == ["no direct connection"]


def test_a_connection_has_two_seconds_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def refuse(_address: tuple[str, int], timeout: float) -> socket.socket:
        waits.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", refuse)
    direct = DirectTransfer("127.0.0.1")
    direct.connect(offer_at(1))
    wait_for_connecting()
    assert waits == [2.0]


def test_a_call_has_one_second_by_default_to_end_with_its_connection(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait_for(_condition: object, _predicate: object, timeout: float) -> bool:
        waits.append(timeout)
        return False

    direct = DirectTransfer("127.0.0.1")
    direct.connect(offer_of(listener))
    accept(listener).close()
    monkeypatch.setattr(threading.Condition, "wait_for", wait_for)
    with pytest.raises(UnavailableError, match="direct connection broke"):
        direct.receive_all(lambda data: None)
    assert waits == [1.0]
    direct.close()


def test_nothing_is_logged_about_a_call_that_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        offer = offer_of(closed)
    direct = DirectTransfer("127.0.0.1")
    direct.close()
    with caplog.at_level(logging.INFO, LOG):
        direct.connect(offer)
        wait_for_connecting()
    assert not caplog.records


def test_a_connection_that_comes_after_the_end_of_the_call_is_closed(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = DirectTransfer("127.0.0.1")
    create, began, goes_on = socket.create_connection, threading.Event(), threading.Event()

    def create_late(address: tuple[str, int], timeout: float) -> socket.socket:
        began.set()
        assert goes_on.wait(SECONDS)
        return create(address, timeout)

    monkeypatch.setattr(socket, "create_connection", create_late)
    direct.connect(offer_of(listener))
    assert began.wait(SECONDS)
    direct.close()
    goes_on.set()
    connected, _ = listener.accept()
    connected.settimeout(SECONDS)
    assert is_ended(connected)
    assert direct._socket is None
    wait_for_connecting()


def test_closing_releases_the_connection(listener: socket.socket) -> None:
    direct = DirectTransfer("127.0.0.1")
    direct.connect(offer_of(listener))
    connected = accept(listener)
    wait_for_connecting()
    direct.close()
    assert is_ended(connected)
    assert direct._socket is not None
    assert direct._socket._socket.fileno() == -1
    direct.close()
