"""The certificates of an input that its processes mount, and when they are renewed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from distributed_input.api import files, identity
from distributed_input_operator.certificates.authority import InputAuthority

MOUNTED_ROLES = (identity.DISPATCHER, identity.WORKER, identity.SIDECAR, identity.VIEWER)
"""Roles with a certificate in the cluster. The operator's own is only in its memory."""


@dataclass(frozen=True)
class MountedCertificates:
    """The data of the ConfigMap with an input's certificates."""

    data: Mapping[str, str]
    seconds: float
    """Time until one of them is due for renewal."""


def renewed(
    authority: InputAuthority, live: Mapping[str, str], now: datetime, life: timedelta
) -> MountedCertificates:
    """Return the certificates in a ConfigMap, with new ones for those that are due or unusable.

    Args:
        authority: of the input.
        live: data of the ConfigMap in the cluster; empty if there is none.
        now: the time, with a time zone.
        life: time for which a new certificate is valid.
    """
    data: dict[str, str] = {}
    soonest = (life * 2 / 3).total_seconds()
    for role in MOUNTED_ROLES:
        key = files.certificate(role)
        left = authority.seconds_left(live.get(key, ""), role, now, life)
        data[key] = live[key] if left else authority.issue(role, now, life)
        soonest = min(soonest, left or soonest)
    return MountedCertificates(data, soonest)
