"""Parts of certificates, for authorities of inputs and of the webhook. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
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


def authority(
    name: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    """Return the certificate of an authority that issues no further ones, before it is signed."""
    # Authorities of one name differ in this identifier, and some clients try only one.
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        builder(name, issuer, key, begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
    )


def issue(
    unsigned: x509.CertificateBuilder,
    names: Sequence[x509.GeneralName],
    usages: Sequence[x509.ObjectIdentifier],
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """Return the certificate of a process, which an authority signs."""
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        unsigned.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def pem(certificate: x509.Certificate) -> str:
    """Return a certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a private key as PEM."""
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return encoded.decode()


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
