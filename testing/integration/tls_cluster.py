"""Dispatcher, workers and sidecars of an encrypted input, as real processes."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

from distributed_input.api.identity import SIDECAR, VIEWER, WORKER
from distributed_input.runtime.credentials import Credentials
from distributed_input.runtime.tls.certificate_folder import CertificateFolder
from distributed_input.runtime.tls_credentials import TlsCredentials
from testing.certificates import LIFE, MountedFolder
from testing.integration.cluster import Cluster

INPUT = "train"


class TlsCluster(Cluster):
    """A cluster without tokens. It has the input `train`.

    Args:
        life: time for which certificates are valid.
        plain_transfer: whether rows use direct connections without encryption.
    """

    def __init__(self, life: timedelta = LIFE, *, plain_transfer: bool = False) -> None:
        self._life, self._plain = life, plain_transfer
        self._mounted: dict[str, MountedFolder] = {}
        self._lock = threading.Lock()  # another thread may renew while this one adds a process
        super().__init__()

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
            for role, mounted in self._mounted.items():
                mounted.issue(role, life=self._life)

    def _folder(self, role: str) -> Path:
        with self._lock:
            if role not in self._mounted:
                self._mounted[role] = MountedFolder(self.folder / "tls" / role / INPUT)
                self._mounted[role].issue(role, life=self._life)
            return self._mounted[role].path
