"""What the processes of one input trust: the certificate of its authority, and its issuer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cryptography import x509

from distributed_input.api import files
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.certificates.issuer import Issuer, UnusableIssuer
from distributed_input_operator.certificates.x509_parts import pem


@dataclass(frozen=True)
class Trust:
    """The certificate of an input's authority. All texts are PEM.

    The authority keeps its name and key when its issuer changes. So processes that trust the
    certificate of before accept certificates of after, and the reverse.
    """

    certificate: str
    chain: str
    """What follows the certificate of a process: empty if the authority signs itself."""
    end: datetime
    """When the authority expires. No certificate of a process lives longer."""


def trust(
    authority: InputAuthority,
    live: Mapping[str, str],
    now: datetime,
    issuer: Issuer | UnusableIssuer | None,
    *,
    is_new: bool = False,
) -> Trust | None:
    """Return the certificate of an input's authority: that in the cluster if it is current.

    Args:
        authority: of the input.
        live: data of the ConfigMap in the cluster; empty if there is none.
        now: the time, with a time zone.
        issuer: what signs authorities. None: they sign themselves. If it is not usable, what is in
            the cluster stays in use. If that is not usable either, the authority signs itself.
        is_new: whether the input has no objects. It then waits for an issuer that is not usable.

    Returns:
        None: the input waits.
    """
    found = _own(authority, live, now)
    if isinstance(issuer, UnusableIssuer):
        if found is not None:
            kept = _certificates(live.get(files.certificate(_ANY_ROLE), ""))[1:]
            return _trust(found, "".join(map(pem, kept)))
        if is_new:
            return None
        issuer = None  # It has the same name and key, so processes that run accept it.
    if found is None or not _is_current(found, issuer):
        text = authority.certificate_from(issuer, now) if issuer else authority.certificate
        found = x509.load_pem_x509_certificate(text.encode())
    return _trust(found, pem(found) + issuer.chain if issuer else "")


def first(text: str) -> str:
    """Return the first certificate in a text, as PEM. Empty: it has none."""
    return "".join(map(pem, _certificates(text)[:1]))


_ANY_ROLE = "dispatcher"
"""All roles have the same chain."""


def _trust(certificate: x509.Certificate, chain: str) -> Trust:
    return Trust(pem(certificate), chain, certificate.not_valid_after_utc)


def _own(
    authority: InputAuthority, live: Mapping[str, str], now: datetime
) -> x509.Certificate | None:
    """Return the authority's certificate in the cluster, if it is valid."""
    try:
        found = x509.load_pem_x509_certificates(live.get(files.AUTHORITIES_KEY, "").encode())[0]
        is_valid = found.not_valid_before_utc <= now < found.not_valid_after_utc
        return found if is_valid and authority.is_own(found) else None
    except Exception:  # noqa: BLE001 - a user may have written any data into the ConfigMap
        return None


def _is_current(own: x509.Certificate, issuer: Issuer | None) -> bool:
    """Whether the issuer has signed a certificate, and would not sign one that lives longer."""
    signer = issuer.certificate if issuer else own
    try:
        own.verify_directly_issued_by(signer)
    except Exception:  # noqa: BLE001 - a user may have written any data into the ConfigMap
        return False
    return issuer is None or own.not_valid_after_utc == issuer.end


def _certificates(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except Exception:  # noqa: BLE001 - the same
        return []
