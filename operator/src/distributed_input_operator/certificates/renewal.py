"""The certificates of an input that its processes mount, and when they are renewed. Pure.

An authority keeps its name and key when its issuer changes. So processes that trust the certificate
of before accept certificates of after, and the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from distributed_input.api import files, identity
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.certificates.issuer import Issuer, UnusableIssuer
from distributed_input_operator.certificates.x509_parts import pem

MOUNTED_ROLES = (identity.DISPATCHER, identity.WORKER, identity.SIDECAR, identity.VIEWER)
"""Roles with a certificate in the cluster. The operator's own is only in its memory."""


@dataclass(frozen=True)
class MountedCertificates:
    """The data of the ConfigMap with an input's certificates."""

    data: Mapping[str, str]
    """Empty: the input waits for the issuer."""
    seconds: float
    """Time until one of them is due for renewal."""


def renewed(
    authority: InputAuthority,
    live: Mapping[str, str],
    now: datetime,
    life: timedelta,
    issuer: Issuer | UnusableIssuer | None = None,
    *,
    is_new: bool = False,
) -> MountedCertificates:
    """Return the certificates in a ConfigMap, with new ones for those that are due or unusable.

    Args:
        authority: of the input.
        live: data of the ConfigMap in the cluster; empty if there is none.
        now: the time, with a time zone.
        life: time for which a new certificate is valid.
        issuer: what signs the authority. None: it signs itself. If it is not usable, the authority
            in the cluster stays in use until it expires. Then it signs itself.
        is_new: whether the input has no objects. It then waits for an issuer that is not usable.
    """
    soonest = (life * 2 / 3).total_seconds()
    own, chain = _own(authority, live, now), ""
    if isinstance(issuer, UnusableIssuer) and own is not None:
        # All roles have the same chain.
        kept = _certificates(live.get(files.certificate(identity.DISPATCHER), ""))[1:]
        chain = "".join(map(pem, kept))
    elif isinstance(issuer, UnusableIssuer) and is_new:
        return MountedCertificates({}, soonest)
    else:
        signer = issuer if isinstance(issuer, Issuer) else None
        if own is None or not _is_current(own, signer):
            text = authority.certificate_from(signer, now) if signer else authority.certificate
            own = x509.load_pem_x509_certificate(text.encode())
        chain = pem(own) + signer.chain if signer else ""
    data, end = {files.AUTHORITIES_KEY: pem(own)}, own.not_valid_after_utc
    for role in MOUNTED_ROLES:
        key = files.certificate(role)
        leaf = first(live.get(key, ""))
        left = authority.seconds_left(leaf, role, now, life, end)
        if not left:
            leaf = authority.issue(role, now, min(life, end - now))
        data[key] = leaf + chain
        soonest = min(soonest, left or soonest)
    return MountedCertificates(data, soonest)


def first(text: str) -> str:
    """Return the first certificate in a text, as PEM. Empty: it has none."""
    return "".join(map(pem, _certificates(text)[:1]))


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
