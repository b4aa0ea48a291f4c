"""Folders with certificates, as the operator issues them and a kubelet mounts them."""

from __future__ import annotations

import itertools
import os
import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

from distributed_input.api import files
from distributed_input.api.identity import (
    AUTHORITIES_FILE,
    CHAIN_FILE,
    KEY_FILE,
    OPERATOR,
    Identity,
)
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.certificates.issuer import Issuer
from distributed_input_operator.certificates.renewal import renewed

LIFE = timedelta(hours=1)
MASTER = 32 * b"k"


def now() -> datetime:
    """Return the time."""
    return datetime.now(timezone.utc)


def authority(uid: str = "u-1", name: str = "digits", master: bytes = MASTER) -> InputAuthority:
    """Return the authority of an input in the namespace `team`."""
    return InputAuthority(master, Identity("team", name, uid, OPERATOR))


class MountedFolder:
    """The folder that a process mounts, which `write` replaces at once."""

    _numbers = itertools.count()

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def write(self, chain: str, key: str, authorities: str) -> Path:
        """Replace the certificate. Return the folder."""
        data = self.path / "..data"
        before = data.resolve() if data.exists() else None
        folder = self.path / f"..{next(self._numbers)}"
        folder.mkdir()
        for name, text in ((CHAIN_FILE, chain), (KEY_FILE, key), (AUTHORITIES_FILE, authorities)):
            (folder / name).write_text(text)
            if before is None:
                (self.path / name).symlink_to(f"..data/{name}")
        link = self.path / "..data_tmp"
        link.symlink_to(folder.name)
        os.replace(link, data)
        if before is not None:
            shutil.rmtree(before)
        return self.path

    def issue(
        self,
        role: str,
        of: InputAuthority | None = None,
        at: datetime | None = None,
        life: timedelta = LIFE,
    ) -> Path:
        """Write a new certificate of a role. Return the folder."""
        issuer = of or authority()
        chain = issuer.issue(role, at or now(), life)
        return self.write(chain, issuer.key(role), issuer.certificate)

    def issue_signed(
        self,
        role: str,
        by: Issuer,
        of: InputAuthority | None = None,
        at: datetime | None = None,
        life: timedelta = LIFE,
    ) -> Path:
        """Write a certificate of a role whose authority an issuer has signed."""
        own = of or authority()
        data = renewed(own, {}, at or now(), life, by).data
        chain, trusted = data[files.certificate(role)], data[files.AUTHORITIES_KEY]
        return self.write(chain, own.key(role), trusted)
