"""The direct connections of a worker: tickets, deadlines, and which message uses them.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import UnavailableError
from distributed_input.api.identity import SIDECAR, WORKER
from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks import direct_sender, frames
from distributed_input.link.blocks.direct_sender import TransferListener, TransferOffer
from distributed_input.link.blocks.frames import Frame
from distributed_input.link.blocks.message_socket import MessageSocket
from distributed_input.link.tls import secure_socket
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.runtime import addresses
from testing.certificates import MountedFolder
from tests.unit.distributed_input.sidecar.streams.given_workers import block_at
from tests.unit.distributed_input.sidecar.system import eventually

SECONDS = 10.0
MOVED = worker_pb2.ConnectResponse(moved=True)


def batch(number: int, rows: int = 2) -> list[Frame]:
    return [Frame(number, [block_at(number, rows)])]


@contextlib.contextmanager
def listening(
    server: str = "127.0.0.1:65535", certificates: CertificateFolder | None = None
) -> Iterator[TransferListener]:
    """Yield a listener on a free port."""
    listener = TransferListener(server, certificates)
    listener.start()
    try:
        yield listener
    finally:
        listener.close()


@pytest.fixture
def listener() -> Iterator[TransferListener]:
    with listening() as listener:
        yield listener


class Call:
    """A call of a sidecar, and what it gets over gRPC and over the direct connection."""

    def __init__(self, listener: TransferListener, offer: TransferOffer) -> None:
        self.offer, self._port = offer, listener.port
        self.sent: Iterator[bytes] = iter(())

    def send(self, batches: Sequence[Sequence[Frame]]) -> worker_pb2.TransferOffer:
        """Begin to send batches. Return the offer."""
        self.sent = self.offer.send(batches)
        first = worker_pb2.ConnectResponse.FromString(next(self.sent))
        assert not first.blocks
        assert not first.moved
        assert first.offer.port == self._port
        return first.offer


@contextlib.contextmanager
def calling(listener: TransferListener) -> Iterator[tuple[Call, Callable[[], None]]]:
    """Yield a call, and what gRPC calls when it ends."""
    callbacks: list[Callable[[], None]] = []
    with listener.offer(callbacks.append) as offer:
        (on_end,) = callbacks
        yield Call(listener, offer), on_end


def connect(port: int, sent: bytes = b"", host: str = "127.0.0.1") -> socket.socket:
    connected = socket.create_connection((host, port), SECONDS)
    connected.sendall(sent)
    return connected


def accepted(call: Call, offer: worker_pb2.TransferOffer) -> MessageSocket:
    """Return the sidecar's end of the direct connection, when the worker has accepted it."""
    connected = connect(offer.port, offer.ticket)
    eventually(lambda: call.offer._accepted is not None)
    return MessageSocket(connected)


def is_refused(connected: socket.socket) -> bool:
    """Wait until the worker ends a connection. Return whether it sent nothing."""
    with connected:
        try:
            return connected.recv(1) == b""
        except ConnectionResetError:
            return True


# The port.


def server_at(host: str) -> tuple[socket.socket, str]:
    """Return a server, and its address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        server = socket.create_server((host, 0), family=family)
        port = int(server.getsockname()[1])
        with contextlib.suppress(OSError, OverflowError), socket.socket(family) as trial:
            trial.bind((host, port + 1))
            return server, addresses.join(host, port)
        server.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "0.0.0.0", "::"])
def test_it_listens_on_the_port_after_that_of_the_server(host: str) -> None:
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    bound = "127.0.0.1" if host == "localhost" else host
    server, address = server_at(bound)
    port = addresses.parse(address)[1]
    with server, listening(addresses.join(host, port)) as listener:
        assert listener.port == port + 1
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, bound)
        with calling(listener) as (call, _):
            offer = call.send([batch(0)])
            connect(offer.port, offer.ticket, reached).close()
            eventually(lambda: call.offer._accepted is not None)


def test_a_server_at_a_unix_socket_has_one_for_rows_and_no_port() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with listening(addresses.unix(f"{folder}/w")) as listener:
            assert (listener.port, listener.local) == (0, f"{folder}/w.rows")
            assert [one.family for one in listener._sockets] == [socket.AF_UNIX]


def test_its_socket_is_removed_once_when_it_closes(folder: Path) -> None:
    address = addresses.unix(f"{folder}/w")
    with listening(address) as first:
        assert os.listdir(folder) == ["w.rows"]
        first.close()
        assert os.listdir(folder) == []
        with listening(address):
            first.close()
            assert os.listdir(folder) == ["w.rows"]


def test_another_port_is_used_if_the_next_one_is_in_use() -> None:
    server, address = server_at("127.0.0.1")
    port = addresses.parse(address)[1]
    with server, socket.create_server(("127.0.0.1", port + 1)), listening(address) as listener:
        assert listener.port not in (port, port + 1)
        connect(listener.port).close()


def test_another_port_is_used_after_the_highest_one(listener: TransferListener) -> None:
    assert 0 < listener.port <= 65535
    connect(listener.port).close()
    assert listener._sockets[0].getsockname()[0] == "127.0.0.1", "no port for other machines"


# Tickets.


def test_a_ticket_is_for_one_connection(listener: TransferListener) -> None:
    with calling(listener) as (call, _):
        offer = call.send([batch(0)])
        with contextlib.closing(accepted(call, offer)):
            first = call.offer._accepted
            assert is_refused(connect(offer.port, offer.ticket))
            assert call.offer._accepted is first


def test_an_invalid_ticket_is_refused(listener: TransferListener) -> None:
    with calling(listener) as (call, _):
        offer = call.send([batch(0)])
        wrong = bytes((offer.ticket[0] ^ 1,)) + offer.ticket[1:]
        for ticket in (bytes(32), wrong, wrong + offer.ticket):
            assert is_refused(connect(offer.port, ticket))
        assert call.offer._accepted is None
        accepted(call, offer).close()  # it is still valid


def test_a_ticket_may_arrive_in_parts(listener: TransferListener) -> None:
    with calling(listener) as (call, _):
        offer = call.send([batch(0)])
        with connect(offer.port) as connected:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in offer.ticket:
                connected.sendall(bytes((byte,)))
            eventually(lambda: call.offer._accepted is not None)


def test_bytes_that_arrive_slowly_do_not_extend_the_deadline(
    listener: TransferListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_sender, "_TICKET_SECONDS", 0.3)
    connected = connect(listener.port)
    connected.settimeout(0.05)
    sent = 0
    with connected:
        while True:
            try:
                connected.sendall(b"x")
                sent += 1
                if not connected.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert sent < 32


def test_silent_connections_block_others_only_until_their_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct_sender, "_TICKET_SECONDS", 0.3)
    monkeypatch.setattr(direct_sender, "_MAX_UNKNOWN", 3)
    with listening() as listener, contextlib.ExitStack() as silent, calling(listener) as (call, _):
        for _ in range(8):
            silent.enter_context(connect(listener.port))
        eventually(lambda: threads("transfer-ticket") == 3)
        accepted(call, call.send([batch(0)])).close()


def test_a_failure_to_accept_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, the process has no file descriptors left for some time."""
    failed = threading.Event()
    accept = socket.socket.accept

    def fail(self: socket.socket) -> object:
        if failed.is_set():
            return accept(self)
        failed.set()
        raise OSError(24, "too many open files")

    monkeypatch.setattr(direct_sender, "_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(direct_sender, "_MAX_UNKNOWN", 1)
    monkeypatch.setattr(socket.socket, "accept", fail)
    with listening() as listener, calling(listener) as (call, _):
        accepted(call, call.send([batch(0)])).close()
    assert failed.is_set()


# Messages.


@given(st.lists(st.integers(1, 3), max_size=6), st.integers(0, 6))
def test_messages_move_to_the_direct_connection_once_it_is_accepted(
    sizes: list[int], before: int
) -> None:
    """Each message is sent once and in order, with `moved` between the two parts."""
    batches = [batch(number, rows) for number, rows in enumerate(sizes)]
    with listening() as listener, calling(listener) as (call, _):
        offer = call.send(batches)
        over_grpc = list(itertools.islice(call.sent, before))
        with contextlib.closing(accepted(call, offer)) as direct:
            over_grpc += call.sent
            call.offer.shut_down()
            over_tcp = [bytes(data) for data in iter(direct.receive, None)]
        while_it_runs = listener.sent_bytes
    expected = [frames.encode(one) for one in batches]
    moved = [MOVED.SerializeToString()] if before < len(batches) else []
    assert over_grpc == expected[:before] + moved
    assert over_tcp == expected[before:]
    assert while_it_runs == listener.sent_bytes == sum(map(len, over_tcp))


def test_an_encrypted_connection_is_replaced_before_its_keys_are_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last message is empty. Without a new connection, the messages use gRPC."""
    worker, sidecar = (
        CertificateFolder(MountedFolder(tmp_path / role).issue(role)) for role in (WORKER, SIDECAR)
    )
    batches = [batch(number) for number in range(5)]
    expected = [frames.encode(one) for one in batches]
    monkeypatch.setattr(secure_socket, "MOST_BYTES", max(map(len, expected)) + 1)
    over_tcp: list[list[bytes]] = []
    with listening(certificates=worker) as listener, calling(listener) as (call, _):
        offer = call.send(batches)
        tickets = {offer.ticket}
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", offer.port), SECONDS) as plain:
                client = secure_socket.connect(sidecar, plain)
                client.sendall(offer.ticket)
                eventually(lambda: call.offer._accepted is not None)
                direct = MessageSocket(client)
                assert next(call.sent) == MOVED.SerializeToString()
                offer = worker_pb2.ConnectResponse.FromString(next(call.sent)).offer
                tickets.add(offer.ticket)
                over_tcp.append([bytes(direct.receive() or b"") for _ in range(3)])
                assert direct.receive() is None
                direct.close()
        assert list(call.sent) == expected[4:]
        assert len(listener._offers) == 1
    assert over_tcp == [[*expected[:2], b""], [*expected[2:4], b""]]
    assert len(tickets) == 3
    assert not listener._offers


def test_a_connection_that_breaks_is_an_error(listener: TransferListener) -> None:
    batches = (batch(0, 100_000) for _ in range(100))
    with calling(listener) as (call, _):
        offer = call.send(batches)  # type: ignore[arg-type]
        accepted(call, offer).close()
        assert next(call.sent) == MOVED.SerializeToString()
        with pytest.raises(UnavailableError, match="the direct connection broke: "):
            list(call.sent)


def test_the_end_of_the_call_ends_a_send_that_blocks(listener: TransferListener) -> None:
    errors: list[Exception] = []

    def send() -> None:
        try:
            list(call.sent)
        except UnavailableError as error:
            errors.append(error)

    with calling(listener) as (call, on_end):
        offer = call.send([batch(0, 1 << 20), batch(1)])
        with contextlib.closing(accepted(call, offer)) as direct:
            sending = threading.Thread(target=send, daemon=True)
            sending.start()
            direct._socket.recv(1)  # it has begun, and the sidecar does not read on
            on_end()
            sending.join(4.0)  # less than the time after which the kernel gives up
            assert not sending.is_alive()
    (error,) = errors
    assert "Broken pipe" in str(error)


# The end.


def threads(name: str) -> int:
    return sum(one.name == name for one in threading.enumerate())


def own_threads() -> set[threading.Thread]:
    names = ("transfer", "transfer-ticket")
    return {one for one in threading.enumerate() if one.name in names}


def descriptors() -> set[str]:
    """Return the open sockets."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith("socket:"):
                found.add(target)
    return found


def test_nothing_is_left_at_the_end() -> None:
    before, running = descriptors(), own_threads()
    with listening() as listener:
        for _ in range(3):
            with calling(listener) as (call, on_end):
                offer = call.send([batch(0)])
                with contextlib.closing(accepted(call, offer)):
                    list(call.sent)
                    on_end()
            with calling(listener) as (call, _):
                call.send([batch(0)])  # without a direct connection
            with calling(listener) as (call, on_end):
                offer = call.send([batch(0)])
                on_end()
                assert is_refused(connect(offer.port, offer.ticket))
            assert is_refused(connect(offer.port, offer.ticket))
        assert not listener._offers
        assert not listener._open
    eventually(lambda: own_threads() <= running)  # those of earlier tests may end meanwhile
    eventually(lambda: descriptors() <= before)
