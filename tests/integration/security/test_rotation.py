"""Certificates that are renewed while a trainer reads."""

from __future__ import annotations

import itertools
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from testing.certificates import MountedFolder
from testing.integration import readers
from testing.integration.cluster import spec
from testing.integration.rotation import Rotation, read_while_rotating
from testing.integration.tls_cluster import INPUT, TlsCluster
from testing.issuer import PlatformRoot
from testing.processes.forks import own_address


@pytest.mark.parametrize(("transfer", "signed"), [("GRPC", True), ("Auto", True), ("Auto", False)])
def test_a_renewal_loses_no_row_and_breaks_no_stream(transfer: str, *, signed: bool) -> None:
    """Certificates live for 15 s, so that a process that keeps the first one is refused.

    If the input's authority is signed, each renewal has another issuer with another key.
    """
    host = own_address() or "127.0.0.1"
    root = PlatformRoot() if signed else None
    found = read_while_rotating(
        renewals=11, every=1.5, life=15.0, transfer=transfer, host=host, root=root
    )
    assert found.warnings == ()
    assert found.epochs >= 1


def test_a_process_that_starts_later_uses_the_certificates_of_now() -> None:
    with TlsCluster(timedelta(seconds=10)) as cluster, Rotation(cluster, 2.0) as rotation:
        (first,) = cluster.add_workers(1)
        (sidecar,) = cluster.add_sidecars(
            {INPUT: spec("rows:numbered", {"rows": 400}, globalBatchSize=10, partitions=2)}
        )
        with readers.connect(sidecar, INPUT) as data:
            rows = iter(data.numpy())
            taken = readers.ids(itertools.islice(rows, 5))
            deadline = time.monotonic() + 60
            while rotation.renewals < 7 and time.monotonic() < deadline:
                time.sleep(0.1)
            assert rotation.renewals >= 7, "the first certificates have not expired"
            cluster.add_workers(1)
            first.kill()
            assert sorted(taken + readers.ids(rows)) == list(range(400))


def test_a_folder_may_be_added_while_all_are_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above do so: the rotation has its own thread."""
    issue = MountedFolder.issue
    with TlsCluster() as cluster:
        adding = threading.Thread(target=cluster.credentials, daemon=True)

        def add_meanwhile(mounted: MountedFolder, *args: Any, **fields: Any) -> Any:
            monkeypatch.undo()
            adding.start()
            adding.join(0.5)  # it has to wait until all are renewed
            return issue(mounted, *args, **fields)

        monkeypatch.setattr(MountedFolder, "issue", add_meanwhile)
        cluster.renew()
        adding.join(10)
        assert not adding.is_alive()
