"""The certificates of an input that its processes mount, and when they are renewed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from distributed_input.api import files, identity
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.certificates.issuer import Issuer, UnusableIssuer
from distributed_input_operator.certificates.trust import first, trust

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
    trusted = trust(authority, live, now, issuer, is_new=is_new)
    if trusted is None:
        return MountedCertificates({}, soonest)
    data = {files.AUTHORITIES_KEY: trusted.certificate}
    for role in MOUNTED_ROLES:
        key = files.certificate(role)
        leaf = first(live.get(key, ""))
        left = authority.seconds_left(leaf, role, now, life, trusted.end)
        if not left:
            leaf = authority.issue(role, now, min(life, trusted.end - now))
        data[key] = leaf + trusted.chain
        soonest = min(soonest, left or soonest)
    return MountedCertificates(data, soonest)
