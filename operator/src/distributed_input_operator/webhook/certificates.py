"""Certificates of the webhook: made here, so that no cert-manager is needed.

Each certificate has an authority of its own, whose key is forgotten as soon as it has signed: there
is nothing to steal that could sign another. While one certificate follows the other, both
authorities are trusted.
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
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=90)
RENEWED_BEFORE = timedelta(days=30)
_CLOCKS = timedelta(hours=1)
"""How far API servers' clocks may be behind."""


@dataclass(frozen=True)
class Certificate:
    """A serving certificate; all PEM."""

    chain: bytes
    key: bytes
    bundle: bytes
    """The authorities to trust: its own, then the one before."""


def make(hosts: Sequence[str], now: datetime, before: Certificate | None = None) -> Certificate:
    """A new certificate for DNS names `hosts`; `now` is aware. `before`: the one it follows."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _named("distributed-input webhook authority")
    # By this, verifiers tell authorities of one name apart; some try but one.
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _builder(issuer, issuer, authority_key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    signed = (
        _builder(_named("distributed-input webhook"), issuer, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    bundle = _pem(authority)
    for old in _parsed(before.bundle)[:1] if before else ():
        bundle += _pem(old) if old.not_valid_after_utc > now else b""
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Certificate(_pem(signed), text, bundle)


def is_good(certificate: Certificate, hosts: Sequence[str], now: datetime) -> bool:
    """Whether it serves `hosts`, fits its key and authority, and need not be renewed yet."""
    try:
        (leaf,) = x509.load_pem_x509_certificates(certificate.chain)
        key = serialization.load_pem_private_key(certificate.key, None)
        leaf.verify_directly_issued_by(x509.load_pem_x509_certificates(certificate.bundle)[0])
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # noqa: BLE001 - someone wrote into the Secret: whatever it is, it is not good
        return False
    return (
        leaf.public_key() == key.public_key()
        and set(hosts) <= set(names.get_values_for_type(x509.DNSName))
        and leaf.not_valid_before_utc <= now < leaf.not_valid_after_utc - RENEWED_BEFORE
    )


def trusts(bundle: bytes, certificate: Certificate) -> bool:
    """Whether the authority of a certificate that we made is in a bundle."""
    return bool(set(_parsed(certificate.bundle)[:1]) & set(_parsed(bundle)))


def server_context() -> ssl.SSLContext:
    """A server's TLS settings, without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load(context: ssl.SSLContext, chain: bytes, key: bytes) -> None:
    """Serve new connections with this certificate. Raises ssl.SSLError, and changes nothing.

    OpenSSL takes files only: these are in memory, as the key belongs on no disk.
    """
    pair = os.memfd_create("webhook-certificate", os.MFD_CLOEXEC)
    try:
        os.write(pair, chain + b"\n" + key)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(f"/proc/self/fd/{pair}")
        context.load_cert_chain(f"/proc/self/fd/{pair}")
    finally:
        os.close(pair)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS)
        .not_valid_after(now + VALID)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _parsed(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []
