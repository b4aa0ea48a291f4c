"""Who may connect to the ports of an encrypted input. docs/security.md has the table."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from distributed_input.api import files
from distributed_input.api.identity import DISPATCHER, SIDECAR, WORKER
from distributed_input.api.proto import dispatcher_pb2, worker_pb2
from distributed_input.link import stubs
from distributed_input.link.blocks.direct_sender import TransferListener
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.runtime import addresses
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.certificates.renewal import renewed
from testing.certificates import LIFE, MountedFolder, authority, now
from testing.integration.tls_cluster import TlsCluster
from testing.issuer import PlatformRoot

PAGE = Path(__file__).parents[3] / "docs" / "security.md"
BEGIN, END = "<!-- peers: from test_peers.py -->\n", "<!-- end of peers -->"
SECONDS = 20.0
ACCEPTED, REFUSED = "accepted", "refused"
ISSUER = PlatformRoot().issuer()
"""Has signed the authority of the servers."""
OWN, OTHER = authority(), authority("u-2")
STRANGER = authority(master=32 * b"x")
"""Issues certificates with the same names as OWN, and another key."""


@dataclass(frozen=True)
class Peer:
    """A client. Without a certificate, it sends a token in clear text, or only begins TLS."""

    issuer: InputAuthority = OWN
    encrypts: bool = True
    role: Callable[[str], str] | None = lambda needed: needed
    """Role in its certificate, given the role that the port accepts. None: no certificate."""
    issued: timedelta = timedelta(0)
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    signed: bool = False
    """Whether it presents the whole chain up to the issuer that the servers' authority has, too."""


PEERS = {
    "in clear text": Peer(role=None, encrypts=False),
    "without certificate": Peer(role=None),
    "of another authority": Peer(issuer=STRANGER),
    "expired": Peer(issued=-3 * LIFE),
    "of another input": Peer(issuer=OTHER),
    "of another input, with the same issuer": Peer(issuer=OTHER, signed=True),
    "of another role": Peer(role=lambda needed: WORKER if needed == SIDECAR else SIDECAR),
    "with TLS 1.2": Peer(newest=ssl.TLSVersion.TLSv1_2),
    "valid": Peer(),
    "valid, with its issuer": Peer(signed=True),
    "valid, 5 min in the future": Peer(issued=timedelta(minutes=5)),
    "valid, 5 min old": Peer(issued=timedelta(minutes=-5)),
}


def certificate(peer: Peer, needed: str) -> tuple[bytes, bytes] | None:
    """Return the key and the certificate of a peer."""
    if peer.role is None:
        return None
    role = peer.role(needed)
    at = now() + peer.issued
    if peer.signed:
        chain = renewed(peer.issuer, {}, at, LIFE, ISSUER).data[files.certificate(role)]
    else:
        chain = peer.issuer.issue(role, at, LIFE)
    return peer.issuer.key(role).encode(), chain.encode()


def context_of(peer: Peer, folder: Path) -> ssl.SSLContext:
    """Return the settings of a client that trusts every server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = peer.newest
    if pair := certificate(peer, SIDECAR):
        path = folder / "client.pem"
        path.write_bytes(b"".join(pair))
        context.load_cert_chain(path)
    return context


def calls(server: str, address: str, peer: Peer) -> str:
    """Return whether a peer can call a method that sidecars call."""
    if peer.newest is not ssl.TLSVersion.TLSv1_3:
        assert not handshake_fails(address, PEERS["valid"])
        return REFUSED if handshake_fails(address, peer) else ACCEPTED
    if peer.encrypts:
        key, chain = certificate(peer, SIDECAR) or (None, None)
        credentials = grpc.ssl_channel_credentials(OWN.certificate.encode(), key, chain)
        name = ("grpc.ssl_target_name_override", OWN.identity(server).server_name)
        channel = grpc.secure_channel(address, credentials, options=[name])
    else:
        channel = grpc.insecure_channel(address)
    with channel:
        try:
            if server == DISPATCHER:
                service = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
                request = dispatcher_pb2.GetJobRequest()
                metadata = (("authorization", "Bearer token"),)
                stubs.Stub(channel, service).GetJob(request, timeout=SECONDS, metadata=metadata)
            else:
                service = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
                list(stubs.Stub(channel, service).Connect(iter(()), timeout=SECONDS))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            refusals = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.PERMISSION_DENIED)
            return REFUSED if error.code() in refusals else ACCEPTED
    return ACCEPTED


def handshake_fails(address: str, peer: Peer) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        context = context_of(peer, Path(folder))
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(addresses.parse(address), SECONDS) as plain:
        try:
            with context.wrap_socket(plain) as encrypted:
                return not encrypted.recv(1)  # gRPC begins with a frame
        except OSError:
            return True


def connects(listener: TransferListener, peer: Peer, folder: Path) -> str:
    """Return whether a peer that has a valid ticket can open a direct connection."""
    with listener.offer(lambda _: None) as offer, contextlib.ExitStack() as stack:
        address = ("127.0.0.1", listener.port)
        connected = stack.enter_context(socket.create_connection(address, SECONDS))
        try:
            if peer.encrypts:
                connected = context_of(peer, folder).wrap_socket(connected)
                stack.enter_context(connected)
            message = worker_pb2.ConnectResponse.FromString(next(iter(offer.send(()))))
            connected.sendall(message.offer.ticket)
            deadline = time.monotonic() + SECONDS
            connected.settimeout(0.05)
            while offer._accepted is None:
                assert time.monotonic() < deadline
                with contextlib.suppress(TimeoutError):
                    assert not connected.recv(1), "the worker sends nothing yet"
                    return REFUSED
        except OSError:
            return REFUSED
    return ACCEPTED


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Callable[..., str]]]:
    """Yield what tries to use each port of the input."""
    folder = tmp_path_factory.mktemp("peers")
    mounted = MountedFolder(folder / "worker").issue_signed(WORKER, ISSUER)
    with TlsCluster(issuer=ISSUER) as cluster:
        (worker,) = cluster.add_workers(1)
        listener = TransferListener("127.0.0.1:0", CertificateFolder(mounted))
        listener.start()
        yield {
            "dispatcher, 7070": lambda peer: calls(DISPATCHER, cluster.address, peer),
            "worker, 7071": lambda peer: calls(WORKER, worker.address, peer),
            "worker, 7072 (rows)": lambda peer: connects(listener, peer, folder),
        }
        listener.close()


def documented() -> list[list[str]]:
    """Return the rows of the table in the page, each a list of cells."""
    lines = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def test_the_table_of_peers_and_ports_is_what_happens(
    ports: Mapping[str, Callable[..., str]],
) -> None:
    found = [["Peer", *ports], ["---"] * (len(ports) + 1)]
    found += [
        [name, *(attempt(peer) for attempt in ports.values())] for name, peer in PEERS.items()
    ]
    assert documented() == found, "\n".join(f"| {' | '.join(row)} |" for row in found)


def test_only_valid_peers_are_accepted() -> None:
    for name, *cells in documented()[2:]:
        assert set(cells) == {ACCEPTED if name.startswith("valid") else REFUSED}
