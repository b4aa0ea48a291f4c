"""Generation and checks of the webhook's certificates, so that cert-manager is not needed.

Each certificate has its own certificate authority (CA), whose key is discarded after signing. So
there is no stored key that could sign another certificate. During a renewal, clients trust both
authorities.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from distributed_input_operator.certificates.x509_parts import (
    authority,
    builder,
    common_name,
    issue,
    key_pem,
    pem,
)

VALIDITY = timedelta(days=90)
RENEW_BEFORE = timedelta(days=30)
_CLOCK_SKEW = timedelta(hours=1)
"""Maximum time that the API servers' clocks may be behind."""


@dataclass(frozen=True)
class Certificate:
    """A server certificate. All fields are PEM."""

    chain: bytes
    key: bytes
    bundle: bytes
    """The trusted authorities: of this certificate, then of its predecessor."""


def generate(
    hosts: Sequence[str], now: datetime, previous: Certificate | None = None
) -> Certificate:
    """Return a new certificate.

    Args:
        hosts: DNS names of the server.
        now: the time with a time zone.
        previous: the certificate that it replaces. Clients keep trusting its authority.
    """
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    begin, end = now - _CLOCK_SKEW, now + VALIDITY
    issuer = common_name("distributed-input webhook authority")
    own = authority(issuer, issuer, authority_key, begin, end).sign(authority_key, hashes.SHA256())
    unsigned = builder(common_name("distributed-input webhook"), issuer, key, begin, end)
    names = [x509.DNSName(host) for host in hosts]
    leaf = issue(unsigned, names, [ExtendedKeyUsageOID.SERVER_AUTH], authority_key)
    kept = _parse(previous.bundle)[:1] if previous else []
    trusted = [own, *(old for old in kept if old.not_valid_after_utc > now)]
    bundle = "".join(map(pem, trusted))
    return Certificate(pem(leaf).encode(), key_pem(key).encode(), bundle.encode())


def is_usable(certificate: Certificate, hosts: Sequence[str], now: datetime) -> bool:
    """Whether a certificate is valid for `hosts`, fits its key and authority, and is not due."""
    try:
        (leaf,) = x509.load_pem_x509_certificates(certificate.chain)
        key = serialization.load_pem_private_key(certificate.key, None)
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificates(certificate.bundle)[0])
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 - a user may have written any data into the Secret
        return False
    return (
        leaf.public_key() == key.public_key()
        and set(hosts) <= set(names.get_values_for_type(x509.DNSName))
        and leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc - RENEW_BEFORE
    )


def trusts(bundle: bytes, certificate: Certificate) -> bool:
    """Whether a bundle has the authority of a certificate that `generate` returned."""
    return bool(set(_parse(certificate.bundle)[:1]) & set(_parse(bundle)))


def server_context() -> ssl.SSLContext:
    """Return the TLS settings of a server, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Use a certificate for new connections.

    OpenSSL reads only files. This one is in memory, so that the key is never on a disk.

    Raises:
        ssl.SSLError: chain and key do not fit. The context does not change.
    """
    file = os.memfd_create("webhook-certificate", os.MFD_CLOEXEC)
    try:
        os.write(file, chain + b"\n" + key)
        for one in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context):
            # Without a password, OpenSSL would ask for that of an encrypted key on a terminal.
            one.load_cert_chain(f"/proc/self/fd/{file}", password="")
    finally:
        os.close(file)


def _parse(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except (ValueError, x509.InvalidVersion):
        return []
