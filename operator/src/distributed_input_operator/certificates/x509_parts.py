"""Parts of certificates, for authorities of inputs and of the webhook. Pure."""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import NameOID


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: CertificateIssuerPrivateKeyTypes,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """Return a certificate that is valid from `begin` to `end`, before it is signed.

    `key` is the private key that fits the certificate.
    """
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the use of the key of an authority, or of a process."""
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


def common_name(text: str) -> x509.Name:
    """Return a name that has only this text."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
