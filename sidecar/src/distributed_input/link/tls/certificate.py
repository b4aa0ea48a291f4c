"""The certificate of a process, checked before it is used."""

from __future__ import annotations

import contextlib
import functools
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import identity
from distributed_input.api.errors import ConfigError
from distributed_input.api.identity import Identity


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, and the authorities that the process trusts. All are PEM."""

    chain: bytes
    key: bytes
    authorities: bytes
    own: Identity
    """What the certificate says about this process."""
    expires: float
    """Seconds since 1970."""

    @functools.cached_property
    def client_context(self) -> ssl.SSLContext:
        """Settings for connections to a server. Pass the server's name to `wrap_socket`."""
        context = _context(ssl.PROTOCOL_TLS_CLIENT, self.authorities)
        _load(context, self.chain, self.key)
        return context

    @functools.cached_property
    def server_context(self) -> ssl.SSLContext:
        """Settings for connections from clients, which need a certificate."""
        context = _context(ssl.PROTOCOL_TLS_SERVER, self.authorities)
        _load(context, self.chain, self.key)
        return context


def checked(chain: bytes, key: bytes, authorities: bytes) -> Certificate:
    """Return the certificate, if peers with the same authorities would accept it now.

    Raises:
        ConfigError: key and certificate do not fit, the certificate is expired or from another
            authority, or it has no identity.
    """
    try:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        _load(client, chain, key)
        server = _context(ssl.PROTOCOL_TLS_SERVER, authorities)
        _load(server, chain, key)
        fields = _presented(client, server)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
        raise ConfigError(str(reason)) from error
    own = peer_identity(fields)
    if own is None:
        raise ConfigError("it has no identity of distributed-input")
    return Certificate(chain, key, authorities, own, ssl.cert_time_to_seconds(fields["notAfter"]))


def peer_identity(fields: Mapping[str, Any] | None) -> Identity | None:
    """Return the identity in what `getpeercert` returned. None: it has none."""
    names = (fields or {}).get("subjectAltName", ())
    return identity.parse(value for kind, value in names if kind == "URI")


def _context(protocol: int, authorities: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    # An input's authority may have an issuer, which its peers do not trust. gRPC does the same.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authorities.decode("ascii"))
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a resumed session would not check the certificate again
    return context


def _load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Use a certificate and its key. OpenSSL reads only files."""
    with _file(chain + b"\n" + key) as path:
        context.load_cert_chain(path, password="")  # OpenSSL would ask on a terminal


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    """Yield the path of a file that only this user can read. It exists for the block only."""
    if hasattr(os, "memfd_create"):  # in memory, on Linux
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name


def _presented(client: ssl.SSLContext, server: ssl.SSLContext) -> Mapping[str, Any]:
    """Return what a server reads in the certificate of a client. Both are in this process."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    connecting = client.wrap_bio(to_client, to_server)
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (connecting, accepting, connecting):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    accepting.do_handshake()
    return accepting.getpeercert() or {}
