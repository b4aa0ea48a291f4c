"""Read while all certificates are renewed: python -m testing.integration.rotation --seconds 600"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from testing.integration import readers
from testing.integration.cluster import spec
from testing.integration.tls_cluster import INPUT, TlsCluster
from testing.issuer import PlatformRoot
from testing.processes.forks import own_address

ROWS, BATCH, REPEAT = 2000, 100, 80


@dataclass(frozen=True)
class RotationResult:
    """What one reading observed."""

    renewals: int
    """Renewals while the trainer read."""
    epochs: int
    """Complete epochs. Each had each row once."""
    longest_wait: float
    """Longest time between two batches, in seconds."""
    warnings: tuple[str, ...]
    """Warnings in the logs, such as those of broken streams."""


class Rotation:
    """Renews all certificates again and again, until the block ends."""

    def __init__(self, cluster: TlsCluster, seconds: float) -> None:
        self.renewals = 0
        self._cluster, self._seconds = cluster, seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rotation", daemon=True)

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            self._cluster.renew()
            self.renewals += 1

    def __enter__(self) -> Rotation:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)


def read_while_rotating(
    *,
    renewals: int,
    every: float,
    life: float,
    transfer: str = "Auto",
    host: str = "127.0.0.1",
    root: PlatformRoot | None = None,
) -> RotationResult:
    """Read whole epochs until all certificates have been renewed a number of times.

    Args:
        renewals: number of renewals.
        every: seconds between two of them.
        life: seconds for which a certificate is valid.
        transfer: as in `spec.sidecar.transfer`.
        host: address of the workers. Rows of loopback addresses use shared memory.
        root: see `TlsCluster`.

    Raises:
        AssertionError: an epoch did not have each row once.
    """
    # Processes may start for longer than the first certificates are valid.
    started = TlsCluster(timedelta(seconds=life), root=root)
    with started as cluster, Rotation(cluster, every) as rotation:
        cluster.add_workers(2, "--listen", f"{host}:0")
        fields = {"globalBatchSize": BATCH, "partitions": 2, "transfer": transfer}
        one = spec("marked:dataset_fn", {"rows": ROWS, "repeat": REPEAT}, **fields)
        (sidecar,) = cluster.add_sidecars({INPUT: one})
        epochs, longest, last = 0, 0.0, 0.0
        with readers.connect(sidecar, INPUT) as data:
            before = rotation.renewals
            while rotation.renewals < before + renewals:
                ids: list[int] = []
                for batch in data.numpy():
                    now = time.monotonic()
                    longest = max(longest, now - last if last else 0.0)
                    last = now
                    ids += batch["id"].tolist()
                assert sorted(ids) == list(range(ROWS)), f"epoch {epochs} differs"
                epochs += 1
            workers = cluster.status().workers  # with a certificate of now
            assert len(workers) == 2
        lines = cluster.new_log_lines().splitlines()
        return RotationResult(
            rotation.renewals - before,
            epochs,
            longest,
            tuple(line for line in lines if '"level": "warning"' in line or "Error" in line),
        )


def main(argv: Sequence[str] | None = None) -> None:
    """Print what a longer reading observes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--every", type=float, default=30.0)
    options = parser.parse_args(argv)
    found = read_while_rotating(
        renewals=round(options.seconds / options.every),
        every=options.every,
        life=options.every * 2,
        host=own_address() or "127.0.0.1",
    )
    print(found)


if __name__ == "__main__":
    main()
