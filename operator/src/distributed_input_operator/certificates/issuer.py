"""The authority of the cluster's administrators that signs the authorities of inputs.

cert-manager issues it, and writes it into a Secret of the operator's namespace. It is checked each
time that it is read, because it may be of any issuer. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from distributed_input_operator.certificates.x509_parts import pem

CHAIN_FIELD, KEY_FIELD = "tls.crt", "tls.key"
"""Fields of the Secret, as cert-manager writes them."""
MISSING, FORBIDDEN, MALFORMED, NOT_VALID, NOT_AUTHORITY = (
    "SecretMissing",
    "SecretForbidden",
    "SecretMalformed",
    "NotValid",
    "NotAuthority",
)
"""Reasons of the condition AuthorityUnusable."""
_CLOCK_SKEW = timedelta(minutes=5)
_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
_SignatureKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class UnusableIssuer(Exception):
    """The Secret has no authority that may sign now. The message says why, and what to do.

    Attributes:
        reason: one CamelCase word.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Issuer:
    """An authority that may sign other authorities."""

    certificate: x509.Certificate
    key: _SignatureKey = field(repr=False)
    chain: str
    """Its certificate and those between it and the root, as PEM. Peers have the root."""

    @property
    def end(self) -> datetime:
        """When its certificate expires."""
        return self.certificate.not_valid_after_utc

    @property
    def hash(self) -> hashes.SHA256 | None:
        """The hash of its signatures. None: the kind of key defines it."""
        return None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256()

    @property
    def key_identifier(self) -> x509.AuthorityKeyIdentifier:
        """What certificates that it signs have, so that clients find it."""
        if own := _extension(self.certificate, x509.SubjectKeyIdentifier):
            return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())


def parse(fields: Mapping[str, bytes], now: datetime) -> Issuer:
    """Return the authority in a Secret.

    Args:
        fields: the Secret's data, decoded.
        now: the time, with a time zone.

    Raises:
        UnusableIssuer: the Secret has none that may sign now.
    """
    try:
        return _parse(fields, now)
    except UnusableIssuer:
        raise
    except Exception as error:
        raise UnusableIssuer(
            MALFORMED,
            f"{CHAIN_FIELD} or {KEY_FIELD} is missing or cannot be read: delete the Secret, and "
            "cert-manager writes it again",
        ) from error


def _parse(fields: Mapping[str, bytes], now: datetime) -> Issuer:
    chain = x509.load_pem_x509_certificates(fields[CHAIN_FIELD])
    key = serialization.load_pem_private_key(fields[KEY_FIELD], None)
    own = chain[0]
    if key.public_key() != own.public_key() or not isinstance(key, _SignatureKey):
        raise UnusableIssuer(
            MALFORMED,
            f"{KEY_FIELD} is not the RSA, ECDSA or Ed25519 key of {CHAIN_FIELD}: delete the "
            "Secret, and cert-manager writes it again",
        )
    for path_length, one in enumerate(chain, 1):
        if refusal := _refused(one, path_length):
            raise UnusableIssuer(NOT_AUTHORITY, refusal)
    if not own.not_valid_before_utc - _CLOCK_SKEW <= now < own.not_valid_after_utc:
        raise UnusableIssuer(
            NOT_VALID,
            f"its certificate is valid from {own.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ} to "
            f"{own.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}, not now: `kubectl describe "
            "certificate` shows why cert-manager does not renew it",
        )
    return Issuer(own, key, "".join(pem(one) for one in chain if one.subject != one.issuer))


def _refused(own: x509.Certificate, path_length: int) -> str:
    """Return why a certificate of the chain may not sign the authorities of inputs, or "".

    It needs a path length for the certificates below it and for the authority of an input.
    """
    whose = (
        "its certificate" if path_length == 1 else f"{own.subject.rfc4514_string()} in its chain"
    )
    remedy = "use an issuer that allows it in encryption.certManager.issuerRef"
    basic, usage = _extension(own, x509.BasicConstraints), _extension(own, x509.KeyUsage)
    if basic is None or not basic.ca:
        return f"{whose} is not one of an authority: set isCA: true, and {remedy}"
    if basic.path_length is not None and basic.path_length < path_length:
        return (
            f"{whose} has the path length {basic.path_length}, so the authorities of inputs are "
            f"not valid: the path length must be at least {path_length}: {remedy}"
        )
    if usage is not None and not usage.key_cert_sign:
        return f"{whose} may not sign certificates (keyUsage): {remedy}"
    return ""


def _extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
