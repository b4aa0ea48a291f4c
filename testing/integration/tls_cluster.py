"""Dispatcher, workers and sidecars of an encrypted input, as real processes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from distributed_input.api.identity import SIDECAR, VIEWER, WORKER
from distributed_input.link.credentials import Credentials
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls_credentials import TlsCredentials
from distributed_input_operator.certificates.authority import CLOCK_SKEW
from distributed_input_operator.certificates.issuer import Issuer
from testing.certificates import LIFE, MountedFolder, now
from testing.hosts import Host
from testing.integration.cluster import Cluster
from testing.issuer import PlatformRoot

INPUT = "train"


class TlsCluster(Cluster):
    """A cluster without tokens. It has the input `train`.

    Args:
        life: time for which certificates are valid.
        plain_transfer: whether rows use direct connections without encryption.
        root: issues the authority that signs that of the input, and another one with each renewal,
            which expires as the certificates do. None: the input's authority signs itself.
        issuer: signs the authority of the input, without renewals. None: as `root` says.
        hosts: where the processes of a kind run, as for Cluster.
    """

    def __init__(
        self,
        life: timedelta = LIFE,
        *,
        plain_transfer: bool = False,
        root: PlatformRoot | None = None,
        issuer: Issuer | None = None,
        hosts: Mapping[str, Host] | None = None,
    ) -> None:
        self._root, self._issuer = root, issuer
        if root:
            self._issuer = root.issuer(now() - CLOCK_SKEW, life + CLOCK_SKEW)
        self._life, self._plain = life, plain_transfer
        self._mounted: dict[str, MountedFolder] = {}
        self._lock = threading.Lock()  # another thread may renew while this one adds a process
        super().__init__(hosts=hosts)

    def __enter__(self) -> TlsCluster:
        return self

    def credential_flags(self, kind: str, token: Path | None) -> list[str]:
        """Return the folder of the process's certificate."""
        folder = self._folder(kind)
        plain = ["--plain-transfer"] if self._plain and kind == WORKER else []
        # The sidecar takes the folder with the folders of all inputs.
        return ["--tls-dir", str(folder.parent if kind == SIDECAR else folder), *plain]

    def credentials(self) -> Credentials:
        """Return the credentials of a viewer."""
        return TlsCredentials(CertificateFolder(self._folder(VIEWER)))

    def renew(self) -> None:
        """Replace the certificates of all processes."""
        with self._lock:
            if self._root:
                self._issuer = self._root.issuer(now() - CLOCK_SKEW, self._life + CLOCK_SKEW)
            for role, mounted in self._mounted.items():
                self._issue(mounted, role)

    def _folder(self, role: str) -> Path:
        with self._lock:
            if role not in self._mounted:
                self._mounted[role] = MountedFolder(self.folder / "tls" / role / INPUT)
                self._issue(self._mounted[role], role)
            return self._mounted[role].path

    def _issue(self, mounted: MountedFolder, role: str) -> None:
        if self._issuer:
            mounted.issue_signed(role, self._issuer, life=self._life)
        else:
            mounted.issue(role, life=self._life)
