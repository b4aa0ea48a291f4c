"""The direct connections of a worker, which carry rows beside gRPC.

gRPC remains the protocol: requests and errors of a call use it. For the messages that the worker
sends, a sidecar may open a TCP connection. Over gRPC it gets a ticket, which is valid for one
connection. If no such connection comes, all messages use gRPC. With certificates, the connection
uses mutual TLS. When it has encrypted `secure_socket.MOST_BYTES`, an empty message ends it, and the
call offers another one, which has new keys.

A sidecar on the same host connects to a Unix socket, and both map memory for the messages. This
needs no encryption: nothing leaves the host, and the ticket came over the encrypted call. The
abstract socket has no file, so it also connects containers of one pod. A worker whose gRPC server
is a Unix socket has another one beside it for rows, and neither a port nor an abstract socket. On
systems without such memory, that socket carries the messages.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.link import unix_sockets
from distributed_input.link.blocks import frames
from distributed_input.link.blocks.frames import Frame
from distributed_input.link.blocks.message_socket import ROWS_SUFFIX, MessageSocket
from distributed_input.link.blocks.sender import Connection
from distributed_input.link.blocks.shared_region import RegionWriter
from distributed_input.link.tls import secure_socket
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.runtime import addresses, logs

_log = logs.get("worker.transfer")
_TICKET_BYTES = 32
_TICKET_SECONDS = 5.0  # in which a connection has to send its ticket
_HIGHEST_PORT = 65535
_MAX_UNKNOWN = 64  # connections that have not sent their ticket
_RETRY_SECONDS = 1.0  # after a connection could not be accepted, for example without descriptors
_MOVED = worker_pb2.ConnectResponse(moved=True).SerializeToString()


class TransferOffer:
    """The offer of a direct connection to the sidecar of one call.

    Attributes:
        sent_bytes: size of all messages that the direct connection has carried.
    """

    def __init__(self, listener: TransferListener) -> None:
        self.sent_bytes = 0
        self._listener = listener
        self._lock = threading.Lock()
        self._accepted: MessageSocket | None = None
        self._closed = False

    def accept(self, connected: socket.socket, region: RegionWriter | None = None) -> None:
        """Use a connection that has sent the ticket, and the memory for its messages, if any."""
        with self._lock:
            if self._closed:
                connected.close()
            else:
                self._accepted = MessageSocket(connected, region)

    def send(self, batches: Iterable[Sequence[Frame]]) -> Iterator[bytes]:
        """Send frames on the direct connection as soon as there is one. Yield what gRPC sends.

        Raises:
            UnavailableError: the direct connection broke.
        """
        yield self._offered()
        moved = False
        for batch in batches:
            direct = self._accepted
            if direct is None:
                yield frames.encode(batch)
                continue
            if not moved:
                yield _MOVED
                moved = True
            try:
                self.sent_bytes += direct.send(frames.encoded_pieces(batch))
                if direct.encrypted_bytes < secure_socket.MOST_BYTES:
                    continue
                direct.send([])
            except OSError as error:
                raise UnavailableError(f"the direct connection broke: {error}") from error
            with self._lock:
                self._accepted, moved = None, False
            direct.close()
            yield self._offered()

    def _offered(self) -> bytes:
        """Return the message with an offer of a new connection."""
        listener = self._listener
        offer = worker_pb2.TransferOffer(
            port=listener.port,
            ticket=listener.new_ticket(self),
            local=listener.local,
            encrypted=listener.certificates is not None,
        )
        return worker_pb2.ConnectResponse(offer=offer).SerializeToString()

    def shut_down(self) -> None:
        """End the direct connection. `send` returns."""
        with self._lock:
            self._closed = True
            if self._accepted is not None:
                self._accepted.shut_down()

    def close(self) -> None:
        """End the direct connection, and release it, after `send` has returned."""
        self.shut_down()
        if self._accepted is not None:
            self._accepted.close()


def serve(
    connection: Connection,
    requests: Iterable[worker_pb2.ConnectRequest],
    context: Any,
    listener: TransferListener | None,
) -> Iterator[bytes]:
    """Yield the messages of a call that gRPC sends; others use the direct connection."""
    threading.Thread(target=connection.read, args=(requests,), name="requests", daemon=True).start()
    if listener is None:
        yield from map(frames.encode, connection.frames())
        return
    with listener.offer(context.add_callback) as offer:
        yield from offer.send(connection.frames())


class TransferListener:
    """Accepts direct connections.

    It listens on the port after the gRPC server's, which the NetworkPolicy of an input allows. If
    that is in use, it listens on a free one. Sidecars that cannot reach it use gRPC.

    Args:
        server: host:port or unix:PATH of the gRPC server.
        certificates: the worker's certificate. None: TCP connections are not encrypted.

    Attributes:
        port: its TCP port; 0: it has none.
        local: name or path of its Unix socket; "": it has none.
        certificates: see above.

    Raises:
        ConfigError: the socket beside that of the server cannot be bound.
    """

    def __init__(self, server: str, certificates: CertificateFolder | None = None) -> None:
        self.certificates = certificates
        self.port, self.local, self._file = 0, "", ""
        if path := addresses.unix_path(server):
            self.local = self._file = path + ROWS_SUFFIX
            self._sockets = [unix_sockets.listen(self.local, f"--listen {server}")]
        else:
            tcp = _listen_beside(*addresses.parse(server))
            self.port = int(tcp.getsockname()[1])
            self._sockets = [tcp]
            if (abstract := _listen_locally()) is not None:
                self.local = abstract.getsockname()[1:].decode()
                self._sockets.append(abstract)
        self._offers: dict[bytes, TransferOffer] = {}  # by hash of the ticket, until it is used
        self._open: set[TransferOffer] = set()
        self._sent_bytes = 0  # by offers that are not open any more
        self._closed = threading.Event()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Accept connections from now on, in threads."""
        for listener in self._sockets:
            threading.Thread(
                target=self._accept, args=(listener,), name="transfer", daemon=True
            ).start()

    @contextlib.contextmanager
    def offer(self, on_end: Callable[[Callable[[], None]], object]) -> Iterator[TransferOffer]:
        """Offer a direct connection while a call runs.

        Args:
            on_end: registers what is called when the call ends.
        """
        offer = TransferOffer(self)
        with self._lock:
            self._open.add(offer)
        on_end(offer.shut_down)
        try:
            yield offer
        finally:
            with self._lock:
                self._offers = {k: one for k, one in self._offers.items() if one is not offer}
                self._open.discard(offer)
                self._sent_bytes += offer.sent_bytes
            offer.close()

    def new_ticket(self, offer: TransferOffer) -> bytes:
        """Return a ticket for one connection of an offer."""
        ticket = secrets.token_bytes(_TICKET_BYTES)
        with self._lock:
            self._offers[_hash(ticket)] = offer
        return ticket

    @property
    def sent_bytes(self) -> int:
        """Size of all messages that direct connections have carried."""
        with self._lock:
            return self._sent_bytes + sum(offer.sent_bytes for offer in self._open)

    def close(self) -> None:
        """Accept no more connections."""
        self._closed.set()
        # Before the socket is closed: after it, another worker may have its socket there.
        file, self._file = self._file, ""
        if file:
            with contextlib.suppress(OSError):
                os.unlink(file)
        for listener in self._sockets:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        unknown = threading.BoundedSemaphore(_MAX_UNKNOWN)
        while True:
            unknown.acquire()
            try:
                connected, _ = listener.accept()
            except OSError as error:
                unknown.release()
                if self._closed.wait(_RETRY_SECONDS):
                    return
                _log.warning("cannot accept a direct connection", cause=str(error))
                continue
            threading.Thread(
                target=self._admit, args=(connected, unknown), name="transfer-ticket", daemon=True
            ).start()

    def _admit(self, connected: socket.socket, unknown: threading.Semaphore) -> None:
        """Read the ticket of a connection, and give the connection to its call."""
        descriptors: list[int] = []
        try:
            if self.certificates is not None and connected.family != socket.AF_UNIX:
                connected = secure_socket.accept(self.certificates, connected, _TICKET_SECONDS)
            ticket = _read_ticket(connected, descriptors)
            with self._lock:
                offer = self._offers.pop(_hash(ticket), None)
            if offer is None:
                raise ConnectionRefusedError("unknown ticket")
            offer.accept(connected, _region_of(descriptors))
        except OSError as error:
            _log.debug("a direct connection was refused", cause=repr(error))
            connected.close()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
            unknown.release()


def _listen_beside(host: str, port: int) -> socket.socket:
    """Listen on the port after the gRPC server's, or else on a free one."""
    try:
        return _listen(host, port + 1 if port < _HIGHEST_PORT else 0)
    except OSError:  # it is in use
        return _listen(host, 0)


def _listen(host: str, port: int) -> socket.socket:
    if addresses.is_wildcard(host):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", port))
    family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family)


def _listen_locally() -> socket.socket | None:
    """Return a Unix socket with an abstract name that cannot be guessed; None: not on Linux."""
    if sys.platform != "linux":  # only Linux has such names
        return None
    local = socket.socket(socket.AF_UNIX)
    try:
        local.bind(f"\0distributed-input-{secrets.token_hex(16)}")
        local.listen()
    except OSError as error:
        _log.debug("no Unix socket for rows", cause=repr(error))
        local.close()
        return None
    return local


def _region_of(descriptors: Sequence[int]) -> RegionWriter | None:
    """Return the memory that a sidecar sent. None if there is none: the socket carries the rows."""
    if not descriptors:
        return None
    try:
        return RegionWriter(descriptors[0])
    except (OSError, ValueError) as error:
        _log.warning("cannot share memory with a sidecar", cause=repr(error))
        return None


def _hash(ticket: bytes) -> bytes:
    """Return the key of a ticket, so that looking it up says nothing about it by its time."""
    return hashlib.sha256(ticket).digest()


def _read_ticket(connected: socket.socket, descriptors: list[int]) -> bytes:
    """Return the ticket of a connection. Append the descriptors that came with it."""
    ticket, deadline = b"", time.monotonic() + _TICKET_SECONDS
    while len(ticket) < _TICKET_BYTES:
        connected.settimeout(max(0.001, deadline - time.monotonic()))
        left = _TICKET_BYTES - len(ticket)
        if connected.family == socket.AF_UNIX:
            flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # not on macOS
            part, found, _, _ = socket.recv_fds(connected, left, 1, flags)
            descriptors += found
        else:
            part = connected.recv(left)
        if not part:
            raise ConnectionResetError("it ended before the ticket")
        ticket += part
    return ticket
