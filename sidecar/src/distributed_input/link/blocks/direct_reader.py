"""The sidecar's end of a direct connection, which carries a worker's messages beside gRPC."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks import shared_region
from distributed_input.link.blocks.message_socket import ROWS_SUFFIX, MessageSocket
from distributed_input.link.blocks.shared_region import RegionReader
from distributed_input.link.tls import secure_socket
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.runtime import addresses, logs

_log = logs.get("sidecar.transfer")
_CONNECT_SECONDS = 2.0  # firewalls drop packets without an answer
_CALL_SECONDS = 1.0  # in which the call of a worker that has ended ends, too


class DirectTransfer:
    """A direct connection to a worker, if the worker offers one and can be reached.

    Attributes:
        failed_at: monotonic time of the last failure, from either end.
    """

    def __init__(self, address: str, certificates: CertificateFolder | None = None) -> None:
        self.failed_at = float("-inf")
        self._path = addresses.unix_path(address)
        self._host = "" if self._path else addresses.parse(address)[0]
        self._certificates = certificates
        self._socket: MessageSocket | None = None
        self._call_ended = False
        self._changed = threading.Condition()

    def connect(self, offer: worker_pb2.TransferOffer) -> None:
        """Connect in another thread. If that fails, the worker keeps using gRPC."""
        threading.Thread(
            target=self._connect, args=(offer,), name="transfer-connect", daemon=True
        ).start()

    def _connect(self, offer: worker_pb2.TransferOffer) -> None:
        address = (self._host, offer.port)
        try:
            if self._path:
                # Not the path in the offer: a worker must not choose files of this process.
                path = self._path + ROWS_SUFFIX
                self._connect_locally(path, offer.ticket, needs_memory=False)
                return
            if offer.local and addresses.is_loopback(addresses.join(*address)):
                try:
                    self._connect_locally(f"\0{offer.local}", offer.ticket)
                    return
                except OSError as error:
                    _log.debug("no shared memory with a worker", cause=repr(error))
            connected = self._open(address, offer.encrypted)
            if self._use(connected):
                connected.sendall(offer.ticket)
        except OSError as error:
            if not self._call_ended:
                _log.info(
                    "no direct connection to a worker: its rows use gRPC",
                    address=self._path or addresses.join(*address),
                    cause=str(error),
                )

    def _open(self, address: tuple[str, int], encrypted: bool) -> socket.socket:
        """Connect to the TCP port of the worker."""
        connected = socket.create_connection(address, _CONNECT_SECONDS)
        if not encrypted:
            return connected
        try:
            if self._certificates is None:
                raise ConnectionRefusedError("this process has no certificate")
            return secure_socket.connect(self._certificates, connected)
        except OSError:
            connected.close()
            raise

    def _connect_locally(self, name: str, ticket: bytes, *, needs_memory: bool = True) -> None:
        """Connect to the Unix socket of the worker, and share memory for its messages.

        If the system has no such memory, and it is not needed, the socket carries the messages.
        """
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(_CONNECT_SECONDS)
            connected.connect(name)
            with _memory(is_needed=needs_memory) as descriptor:
                region = None if descriptor is None else RegionReader(descriptor)
                if not self._use(connected, region):
                    return
                if descriptor is None:
                    connected.sendall(ticket)
                else:
                    socket.send_fds(connected, [ticket], [descriptor])
        except OSError:
            connected.close()
            raise

    def _use(self, connected: socket.socket, region: RegionReader | None = None) -> bool:
        """Receive from a connection. Return whether the call has not ended."""
        with self._changed:
            if self._call_ended:
                connected.close()
                return False
            self._socket = MessageSocket(connected, region)
            return True

    def receive_all(self, handle: Callable[[memoryview], None]) -> None:
        """Pass on all messages until the call ends. The worker has moved to this connection.

        An empty message ends the connection, but not the call: the worker continues with gRPC, and
        offers a new connection, because this one has encrypted enough with its keys.

        Raises:
            UnavailableError: the connection broke, and the call did not end.
            ValueError: the worker sent something else than messages.
        """
        assert self._socket is not None  # it has carried the ticket
        cause = "it was closed"
        try:
            while (data := self._socket.receive()) is not None:
                if not data:
                    self._release()
                    return
                handle(data)
                del data  # it may be a part of the shared memory
        except OSError as error:
            cause = str(error)
        with self._changed:
            if not self._changed.wait_for(lambda: self._call_ended, _CALL_SECONDS):
                raise UnavailableError(f"the direct connection broke: {cause}")

    def _release(self) -> None:
        with self._changed:
            if self._socket is not None:
                self._socket.close()
            self._socket = None

    def record_failure(self) -> None:
        """Record that a connection broke, or carried something else than messages."""
        self.failed_at = time.monotonic()

    def end(self) -> None:
        """End the connection, because the call has ended. `receive_all` returns."""
        with self._changed:
            self._call_ended = True
            self._changed.notify_all()
            if self._socket is not None:
                self._socket.shut_down()

    def close(self) -> None:
        """Release the connection. `receive_all` does not run any more."""
        self.end()
        if self._socket is not None:
            self._socket.close()


@contextlib.contextmanager
def _memory(*, is_needed: bool) -> Iterator[int | None]:
    """Yield the descriptor of memory for messages; None if the system has none.

    Raises:
        OSError: the system has none, and it is needed.
    """
    with contextlib.ExitStack() as stack:
        descriptor = None
        try:
            descriptor = stack.enter_context(shared_region.created())
        except OSError as error:
            if is_needed:
                raise
            _log.debug("no shared memory with a worker", cause=repr(error))
        yield descriptor
