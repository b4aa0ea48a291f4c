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
from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.mark.parametrize(
    ("sent", "cause"),
    [(b"", "it was closed"), (b"abc", "the connection ended within a message")],
)
def test_a_connection_that_breaks_while_the_call_lives_is_an_error(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, sent: bytes, cause: str
) -> None:
    monkeypatch.setattr(direct_reader, "_CALL_SECONDS", 0.1)
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        worker._socket.sendall(sent)
        worker.close()
        receiving.wait()
    (error,) = receiving.errors
    assert isinstance(error, UnavailableError)
    assert str(error) == f"the direct connection broke: {cause}"


def test_something_else_than_messages_is_an_error(listener: socket.socket) -> None:
    with moved(listener) as (direct, worker):
        receiving = Receiving(direct)
        worker._socket.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        receiving.wait()
    assert isinstance(receiving.errors[0], ValueError)


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_port_that_is_closed_is_logged_once_while_the_call_runs(
    caplog: pytest.LogCaptureFixture, has_ended: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        offer = offer_of(closed)
    direct = DirectTransfer("127.0.0.1:1")
    if has_ended:
        direct.close()
    with caplog.at_level(logging.INFO, LOG):
        direct.connect(offer)
        wait_for_connecting()
    direct.close()
    expected = [] if has_ended else ["no direct connection to a worker: its rows use gRPC"]
    assert [record.getMessage() for record in caplog.records] == expected
    assert direct.failed_at == float("-inf"), "the next connection tries again"


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


@pytest.mark.usefixtures("no_memory")
def test_without_such_memory_the_unix_socket_of_a_path_carries_the_rows() -> None:
    """There is no TCP port either."""
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


@pytest.fixture(params=[(os, "memfd_create"), (fcntl, "F_ADD_SEALS"), None])
def no_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what a build of Python for an old system or macOS lacks, or let it fail."""
    if request.param is not None:
        monkeypatch.delattr(*request.param, raising=False)
    else:
        monkeypatch.setattr(os, "memfd_create", fail_to_create, raising=False)


@pytest.mark.usefixtures("no_memory")
def test_tcp_is_used_if_there_is_no_memory(worker_listener: TransferListener) -> None:
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
