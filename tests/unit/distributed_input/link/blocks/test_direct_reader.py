"""The sidecar's end of a direct connection, over TCP and with memory that the worker shares.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks import direct_reader, shared_region
from distributed_input.link.blocks.direct_reader import DirectTransfer
from distributed_input.link.blocks.direct_sender import TransferListener, TransferOffer
from distributed_input.link.blocks.message_socket import MessageSocket
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.runtime import addresses
from testing.certificates import MountedFolder
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
    direct = DirectTransfer("127.0.0.1:1")
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
        for data in (b"a", b"bc"):
            worker.send([data])
        eventually(lambda: len(receiving.messages) == 2)
        assert not receiving.has_ended
        direct.end()
        receiving.wait()
    assert (receiving.messages, receiving.errors) == ([b"a", b"bc"], [])


def test_an_empty_message_ends_the_connection_and_not_the_call(listener: socket.socket) -> None:
    with moved(listener) as (direct, worker):
        for expected in (b"a", b"b"):
            receiving = Receiving(direct)
            worker.send([expected])
            worker.send([])
            receiving.wait()
            assert (receiving.messages, receiving.errors) == ([expected], [])
            assert is_ended(worker._socket)
            direct.connect(offer_of(listener))
            worker = MessageSocket(accept(listener))
        worker.close()


@pytest.mark.parametrize("ends_first", [True, False])
def test_the_end_of_the_call_is_no_error_of_the_connection(
    listener: socket.socket, ends_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that ends the call also ends the connection, in either order."""
    monkeypatch.setattr(direct_reader, "_CALL_SECONDS", 10 * SECONDS)
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
    monkeypatch.setattr(direct_reader, "_CALL_SECONDS", 0.1)
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        worker.close()
        receiving.wait()
    (error,) = receiving.errors
    assert isinstance(error, UnavailableError)
    assert str(error) == "the direct connection broke: it was closed"


def test_the_error_has_the_cause(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_reader, "_CALL_SECONDS", 0.1)
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
    direct = DirectTransfer("127.0.0.1:1")
    assert direct.failed_at == float("-inf")
    direct.record_failure()
    assert direct.failed_at == 1234.5


def test_a_port_that_is_closed_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        offer = offer_of(closed)
    direct = DirectTransfer("127.0.0.1:1")
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
    monkeypatch.setattr(direct_reader, "_CONNECT_SECONDS", 0.2)
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(2):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        direct = DirectTransfer("127.0.0.1:1")
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
    direct = DirectTransfer("127.0.0.1:1")
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

    direct = DirectTransfer("127.0.0.1:1")
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
    direct = DirectTransfer("127.0.0.1:1")
    direct.close()
    with caplog.at_level(logging.INFO, LOG):
        direct.connect(offer)
        wait_for_connecting()
    assert not caplog.records


def test_a_connection_that_comes_after_the_end_of_the_call_is_closed(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = DirectTransfer("127.0.0.1:1")
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
    direct = DirectTransfer("127.0.0.1:1")
    direct.connect(offer_of(listener))
    connected = accept(listener)
    wait_for_connecting()
    direct.close()
    assert is_ended(connected)
    assert direct._socket is not None
    assert direct._socket._socket.fileno() == -1
    direct.close()


# Shared memory: a worker and a sidecar of one host. Both ends are real.

LARGE = 1 << 20


@contextlib.contextmanager
def started(listener: TransferListener) -> Iterator[TransferListener]:
    listener.start()
    yield listener
    listener.close()


@pytest.fixture
def worker_listener() -> Iterator[TransferListener]:
    with started(TransferListener("127.0.0.1:65535")) as listener:
        yield listener


@contextlib.contextmanager
def offering(
    worker_listener: TransferListener,
) -> Iterator[tuple[TransferOffer, worker_pb2.TransferOffer]]:
    with worker_listener.offer(lambda _: None) as offer:
        first = worker_pb2.ConnectResponse.FromString(next(offer.send([])))
        yield offer, first.offer


@contextlib.contextmanager
def shared(
    worker_listener: TransferListener, local: str | None = None
) -> Iterator[tuple[MessageSocket, DirectTransfer]]:
    """Yield both ends of a connection.

    Args:
        worker_listener: listener of the worker.
        local: name of the Unix socket in the offer, if it is not the listener's.
    """
    with offering(worker_listener) as (offer, offered):
        if local is not None:
            offered.local = local
        direct = DirectTransfer("127.0.0.1:1")
        direct.connect(offered)
        eventually(lambda: offer._accepted is not None)
        assert offer._accepted is not None
        yield offer._accepted, direct
        direct.close()


def message(number: int, size: int = LARGE) -> bytes:
    return np.random.default_rng(number).bytes(size)


def family_of(end: MessageSocket) -> int:
    return end._socket.family


def test_messages_arrive_equal_and_in_order(worker_listener: TransferListener) -> None:
    sizes = [LARGE, 5, 40_000, LARGE, 1 << 15, (1 << 15) - 1]
    messages = [message(number, size) for number, size in enumerate(sizes)]
    with shared(worker_listener) as (worker, direct):
        receiving = Receiving(direct)
        for one in messages:
            assert worker.send([one[:3], memoryview(one)[3:]]) == len(one)
        eventually(lambda: len(receiving.messages) == len(messages))
        direct.end()
        receiving.wait()
    assert receiving.messages == messages
    assert not receiving.errors


def test_only_large_messages_are_in_the_shared_memory(worker_listener: TransferListener) -> None:
    with shared(worker_listener) as (worker, direct):
        assert worker._writer is not None
        receiving = Receiving(direct)
        for size in ((1 << 15) - 1, 1 << 15):
            worker.send([message(size, size)])
        eventually(lambda: len(receiving.messages) == 2)
        assert bytes(worker._writer.data[: 1 << 15]) == message(1 << 15, 1 << 15)


def test_messages_use_the_socket_while_the_memory_is_full(
    worker_listener: TransferListener,
) -> None:
    kept: list[memoryview] = []
    most = shared_region.REGION_BYTES // LARGE
    with shared(worker_listener) as (worker, direct):
        receiving = Receiving(direct, kept.append)
        for number in range(most + 3):
            worker.send([message(number)])
        eventually(lambda: len(kept) == most + 3)
        assert [bytes(data) for data in kept] == [message(n) for n in range(most + 3)]
        # The places of the first messages are used again, and only these.
        del kept[:2]
        for number in range(3):
            worker.send([message(100 + number)])
        eventually(lambda: len(kept) == most + 4)
        expected = [*range(2, most + 3), 100, 101, 102]
        assert [bytes(data) for data in kept] == [message(n) for n in expected]
        assert not receiving.errors


def test_messages_that_are_kept_outlive_the_connection(worker_listener: TransferListener) -> None:
    kept: list[memoryview] = []
    with shared(worker_listener) as (worker, direct):
        Receiving(direct, kept.append)
        worker.send([message(1)])
        eventually(lambda: kept)
    del worker, direct
    assert bytes(kept[0]) == message(1)


@pytest.mark.parametrize("local", ["", "nothing-listens-here"])
def test_tcp_is_used_without_a_unix_socket(worker_listener: TransferListener, local: str) -> None:
    with shared(worker_listener, local) as (worker, direct):
        receiving = Receiving(direct)
        worker.send([message(1)])
        eventually(lambda: receiving.messages == [message(1)])
        assert family_of(worker) == socket.AF_INET
        assert worker._writer is None


def fail_to_create(*_: object) -> int:
    raise OSError("no memory")


def test_tcp_is_used_if_there_is_no_memory(
    worker_listener: TransferListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "memfd_create", fail_to_create)
    with shared(worker_listener) as (worker, _):
        assert family_of(worker) == socket.AF_INET


def test_a_worker_on_another_host_is_not_looked_for_on_this_one(
    worker_listener: TransferListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def refuse(address: object, _timeout: float) -> socket.socket:
        tried.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", refuse)
    with offering(worker_listener) as (offer, offered):
        direct = DirectTransfer("192.0.2.1:1")
        direct.connect(offered)
        wait_for_connecting()
        assert offer._accepted is None
    assert tried == [("192.0.2.1", worker_listener.port)]


def test_the_path_of_a_unix_socket_follows_from_the_workers_address() -> None:
    """A worker must not choose which file of the sidecar's host gets a ticket."""
    with tempfile.TemporaryDirectory() as folder:
        address = addresses.unix(f"{folder}/w")
        with started(TransferListener(address)) as listener, offering(listener) as (offer, offered):
            offered.local = f"{folder}/other"
            direct = DirectTransfer(address)
            direct.connect(offered)
            eventually(lambda: offer._accepted is not None)
            assert offer._accepted is not None
            assert offer._accepted._writer is not None  # they share memory
            direct.close()


@pytest.mark.parametrize("removed", [(os, "memfd_create"), (fcntl, "F_ADD_SEALS"), None])
def test_without_such_memory_the_unix_socket_of_a_path_carries_the_rows(
    monkeypatch: pytest.MonkeyPatch, removed: tuple[Any, str] | None
) -> None:
    """As on macOS. There is no TCP port either."""
    if removed is not None:
        monkeypatch.delattr(*removed, raising=False)
    else:
        monkeypatch.setattr(os, "memfd_create", fail_to_create, raising=False)
    sizes = [LARGE, 5, 40_000]
    messages = [message(number, size) for number, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        address = addresses.unix(f"{folder}/w")
        with started(TransferListener(address)) as listener, offering(listener) as (offer, offered):
            direct = DirectTransfer(address)
            direct.connect(offered)
            eventually(lambda: offer._accepted is not None)
            worker = offer._accepted
            assert worker is not None
            assert (family_of(worker), worker._writer) == (socket.AF_UNIX, None)
            receiving = Receiving(direct)
            for one in messages:
                worker.send([one])
            eventually(lambda: receiving.messages == messages)
            direct.end()
            receiving.wait()
            assert not receiving.errors
            direct.close()


def local_socket(name: str) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(SECONDS)
    connected.connect(f"\0{name}")
    return connected


@pytest.mark.parametrize("ticket", [b"", bytes(31), bytes(32)])
def test_a_connection_without_a_ticket_is_refused(
    worker_listener: TransferListener, ticket: bytes
) -> None:
    with offering(worker_listener) as (offer, offered), local_socket(offered.local) as unknown:
        if ticket:
            unknown.sendall(ticket)
        unknown.shutdown(socket.SHUT_WR)
        assert unknown.recv(1) == b""
        assert offer._accepted is None


def test_other_memory_is_not_used(worker_listener: TransferListener) -> None:
    """A file that can be cut would end the worker when it writes. The socket carries the rows."""
    descriptor = os.memfd_create("other")
    os.ftruncate(descriptor, 4096 + (1 << 16))
    with offering(worker_listener) as (offer, offered), local_socket(offered.local) as unknown:
        socket.send_fds(unknown, [offered.ticket], [descriptor])
        eventually(lambda: offer._accepted is not None)
        assert offer._accepted is not None
        assert offer._accepted._writer is None
        offer._accepted.send([b"row"])
        assert unknown.recv(100) == struct.pack("<Q", 3) + b"row"
    os.close(descriptor)


@pytest.mark.parametrize(("module", "name"), [(os, "memfd_create"), (fcntl, "F_ADD_SEALS")])
def test_tcp_is_used_if_python_has_no_such_memory(
    worker_listener: TransferListener, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    """As in builds of Python for old systems."""
    monkeypatch.delattr(module, name)
    with shared(worker_listener) as (worker, _):
        assert family_of(worker) == socket.AF_INET


def regions() -> set[str]:
    """Return the descriptors of this process that are regions."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it is closed meanwhile
            if "distributed-input" in os.readlink(f"/proc/self/fd/{descriptor}"):
                found.add(descriptor)
    return found


def test_a_connection_that_ends_releases_its_memory(worker_listener: TransferListener) -> None:
    before = regions()
    with shared(worker_listener) as (worker, direct):
        worker.send([message(1)])
        assert len(regions() - before) == 2, "one mapping on each side"
    del worker, direct
    eventually(lambda: not regions() - before)


@pytest.mark.parametrize("place", [1, 1 << 40, shared_region.REGION_BYTES])
def test_a_message_outside_of_the_memory_is_an_error(
    worker_listener: TransferListener, place: int
) -> None:
    with shared(worker_listener) as (worker, direct):
        receiving = Receiving(direct)
        worker._socket.sendall(struct.pack("<QQ", (1 << 63) | 100, place))
        receiving.wait()
    assert isinstance(receiving.errors[0], ValueError)


def test_shared_memory_is_refused_on_a_connection_without_it(
    worker_listener: TransferListener,
) -> None:
    with shared(worker_listener, "") as (worker, direct):
        receiving = Receiving(direct)
        worker._socket.sendall(struct.pack("<QQ", (1 << 63) | 100, 0))
        receiving.wait()
    assert isinstance(receiving.errors[0], ValueError)


def test_without_certificate_no_ticket_is_sent_to_a_worker_that_encrypts(
    listener: socket.socket,
) -> None:
    direct = DirectTransfer("127.0.0.1:1")
    offer = offer_of(listener)
    offer.encrypted = True
    direct.connect(offer)
    connected, _ = listener.accept()
    connected.settimeout(SECONDS)
    assert is_ended(connected)
    direct.close()


def test_nothing_is_sent_in_clear_text_to_a_worker_that_encrypts(
    listener: socket.socket, tmp_path: Path
) -> None:
    certificates = CertificateFolder(MountedFolder(tmp_path).issue("sidecar"))
    direct = DirectTransfer("127.0.0.1:1", certificates)
    offer = offer_of(listener)
    offer.encrypted = True
    direct.connect(offer)
    connected, _ = listener.accept()
    with connected:
        connected.settimeout(SECONDS)
        hello = connected.recv(1 << 16)
    assert hello[0] == 22, "the handshake of TLS"
    assert TICKET not in hello
    wait_for_connecting()
    direct.close()
