"""Direct connections with mutual TLS."""

from __future__ import annotations

import socket
import ssl

from distributed_input.api import identity
from distributed_input.link.tls.certificate import peer_identity
from distributed_input.link.tls.certificate_folder import CertificateFolder

_PIECE_BYTES = 16 << 10
"""OpenSSL sends at most this much in one record. Smaller pieces are joined."""
MOST_BYTES = 256 << 30
"""After this, a connection needs new keys. It is 2^24 records. AES-GCM is safe for 2^24.5 full ones
(RFC 8446, 5.5). Python cannot request new keys of an open connection."""


def accept(folder: CertificateFolder, connected: socket.socket, seconds: float) -> ssl.SSLSocket:
    """Return the encrypted connection of a client that may use a direct connection.

    Raises:
        OSError: the client has no certificate of this input, or not the role, or takes too long.
    """
    current = folder.current()
    connected.settimeout(seconds)
    secured = current.server_context.wrap_socket(connected, server_side=True)
    peer = peer_identity(secured.getpeercert())
    if refusal := identity.refusal(current.own, peer, identity.DIRECT_TRANSFER):
        secured.close()
        raise ConnectionRefusedError(refusal)
    return secured


def connect(folder: CertificateFolder, connected: socket.socket) -> ssl.SSLSocket:
    """Return the encrypted connection to a worker of the same input.

    Raises:
        OSError: it is not a worker of this input.
    """
    current = folder.current()
    name = current.own.with_role(identity.WORKER).server_name
    return current.client_context.wrap_socket(connected, server_hostname=name)


def joined(pieces: list[memoryview]) -> list[memoryview]:
    """Return the same bytes in fewer pieces, because each piece is encrypted by itself."""
    result: list[memoryview] = []
    small = bytearray()
    for piece in pieces:
        if piece.nbytes < _PIECE_BYTES:
            small += piece
            if len(small) < _PIECE_BYTES:
                continue
            piece = memoryview(b"")
        if small:
            result.append(memoryview(small))
            small = bytearray()
        if piece.nbytes:
            result.append(piece)
    return [*result, memoryview(small)] if small else result
