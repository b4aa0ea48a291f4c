"""Trainers as separate processes, each beside its sidecar."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed_input.runtime.addresses import free_ports
from testing.integration.cluster import Sidecar
from testing.processes import forks

SECONDS = 200.0
Results = list[dict[str, Any]]
"""The results of each trainer."""


def run_trainers(
    module: str, sidecars: Sequence[Sidecar], *arguments: str, package: str = "testing.compat"
) -> Results:
    """Run `PACKAGE.MODULE` as a process beside each sidecar and return the results.

    TF_CONFIG describes the cluster. The processes are forks, because the import of TensorFlow takes
    most of the CPU time of a short trainer. Raises AssertionError with the log of a trainer that
    failed.
    """
    workers = [f"127.0.0.1:{port}" for port in free_ports(len(sidecars))]
    trainers: list[forks.Process] = []
    with tempfile.TemporaryDirectory(prefix="di-trainers-") as folder:
        try:
            for index, sidecar in enumerate(sidecars):
                task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
                trainers.append(
                    forks.shared().start(
                        f"{package}.{module}",
                        f"trainer-{index}",
                        Path(folder),
                        arguments,
                        env={
                            "TF_CONFIG": json.dumps(task),
                            "DISTRIBUTED_INPUT_DIR": str(sidecar.shared),
                        },
                        heavy=True,
                    )
                )
            for trainer in trainers:
                assert trainer.wait(SECONDS) == 0, trainer.tail()
            return [trainer.ready() for trainer in trainers]
        finally:
            for trainer in trainers:
                trainer.kill()
