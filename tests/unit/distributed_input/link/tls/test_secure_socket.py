"""Direct connections with mutual TLS, and peers that are refused."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.identity import DISPATCHER, OPERATOR, SIDECAR, VIEWER, WORKER
from distributed_input.link.blocks.message_socket import MessageSocket
from distributed_input.link.tls import secure_socket
from distributed_input.link.tls.certificate_folder import CertificateFolder
from testing.certificates import MountedFolder, authority

SECONDS = 10.0


def folder(path: Path, role: str, uid: str = "u-1") -> CertificateFolder:
    return CertificateFolder(MountedFolder(path / f"{role}-{uid}").issue(role, authority(uid)))


class Pair:
    """A worker that accepts one connection."""

    def __init__(self, worker: CertificateFolder) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.accepted: list[ssl.SSLSocket | OSError] = []
        self._thread = threading.Thread(target=self._accept, args=(worker,), daemon=True)
        self._thread.start()

    def _accept(self, worker: CertificateFolder) -> None:
        connected, _ = self.listener.accept()
        try:
            self.accepted.append(secure_socket.accept(worker, connected, SECONDS))
        except OSError as error:
            self.accepted.append(error)

    def result(self) -> ssl.SSLSocket | OSError:
        self._thread.join(SECONDS)
        self.listener.close()
        return self.accepted[0]


def connected(path: Path, role: str = SIDECAR) -> tuple[MessageSocket, MessageSocket]:
    pair = Pair(folder(path, WORKER))
    plain = socket.create_connection(pair.address, SECONDS)
    client = secure_socket.connect(folder(path, role), plain)
    accepted = pair.result()
    assert isinstance(accepted, ssl.SSLSocket), accepted
    assert client.version() == "TLSv1.3"
    return MessageSocket(accepted), MessageSocket(client)


def test_messages_of_any_size_arrive(tmp_path: Path) -> None:
    worker, sidecar = connected(tmp_path)
    sizes = [0, 1, 100, (16 << 10) - 1, 16 << 10, 100_000, 5_000_000]
    messages = [[bytes([n]) * size, b"", b"end"] for n, size in enumerate(sizes)]

    def send() -> None:
        for message in messages:
            worker.send(message)
        worker.close()

    threading.Thread(target=send, daemon=True).start()
    for message in messages:
        found = sidecar.receive()
        assert found is not None
        assert bytes(found) == b"".join(message)
    assert sidecar.receive() is None
    sidecar.close()


def refused(path: Path, client: Callable[[socket.socket], Any]) -> OSError:
    """Return why the worker refused a client."""
    pair = Pair(folder(path, WORKER))
    with socket.create_connection(pair.address, SECONDS) as plain:
        try:
            # In TLS 1.3 a client learns only from its first read that it was refused.
            with client(plain) as opened:
                assert opened.recv(1) == b""
        except OSError:
            pass
    found = pair.result()
    assert isinstance(found, OSError)
    return found


@pytest.mark.parametrize("role", [OPERATOR, DISPATCHER, WORKER, VIEWER])
def test_other_roles_are_refused(tmp_path: Path, role: str) -> None:
    client = folder(tmp_path, role)
    error = refused(tmp_path, lambda plain: secure_socket.connect(client, plain))
    assert f"the role {role} may not use direct transfer" in str(error)


def test_clear_text_is_refused(tmp_path: Path) -> None:
    def send(plain: socket.socket) -> socket.socket:
        plain.sendall(32 * b"t")
        return plain

    assert isinstance(refused(tmp_path, send), ssl.SSLError)


@pytest.mark.parametrize(("role", "uid"), [(DISPATCHER, "u-1"), (SIDECAR, "u-1"), (WORKER, "u-2")])
def test_a_sidecar_connects_to_workers_of_its_input_only(
    tmp_path: Path, role: str, uid: str
) -> None:
    pair = Pair(folder(tmp_path, role, uid))
    sidecar = folder(tmp_path / "client", SIDECAR)
    with socket.create_connection(pair.address, SECONDS) as plain:
        with pytest.raises(ssl.SSLCertVerificationError):
            secure_socket.connect(sidecar, plain)
    assert isinstance(pair.result(), OSError)


def test_after_shutdown_nothing_is_sent_in_clear_text(tmp_path: Path) -> None:
    """SSLSocket.shutdown would let a thread that sends continue without encryption."""
    worker, sidecar = connected(tmp_path)
    worker.shut_down()
    assert isinstance(worker._socket, ssl.SSLSocket)
    assert worker._socket._sslobj is not None
    with pytest.raises(OSError, match=r"Broken pipe|EOF|closed"):
        worker.send([b"rows"])
    sidecar.close()
    worker.close()


@given(st.lists(st.integers(0, 40_000), max_size=8))
def test_joined_pieces_have_the_same_bytes(sizes: list[int]) -> None:
    pieces = [memoryview(bytes([n % 256]) * size) for n, size in enumerate(sizes)]
    found = secure_socket.joined(pieces)
    assert b"".join(found) == b"".join(pieces)
    small = [piece for piece in found if piece.nbytes < 16 << 10]
    assert len(small) <= sum(size >= 16 << 10 for size in sizes) + 1


def test_a_sidecar_of_another_input_is_refused(tmp_path: Path) -> None:
    context = folder(tmp_path, SIDECAR, "u-2").current().client_context
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    error = refused(tmp_path, context.wrap_socket)
    assert isinstance(error, ssl.SSLError)


def test_a_client_without_certificate_is_refused(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    error = refused(tmp_path, context.wrap_socket)
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in str(error).upper().replace(" ", "_")
