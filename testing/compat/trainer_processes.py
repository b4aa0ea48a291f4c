"""Trainers as separate processes, each beside its sidecar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed_input.runner.processes.trainers import free_ports
from testing.integration.cluster import Sidecar

ROOT = Path(__file__).parents[2]
SECONDS = 200.0
Results = list[dict[str, Any]]
"""The JSON that each trainer printed."""


def run_trainers(
    module: str, sidecars: Sequence[Sidecar], *arguments: str, package: str = "testing.compat"
) -> Results:
    """Run `python -m PACKAGE.MODULE` beside each sidecar and return the JSON that they print.

    TF_CONFIG describes the cluster. Raises AssertionError with the stderr of a trainer that failed.
    """
    workers = [f"127.0.0.1:{port}" for port in free_ports(len(sidecars))]
    trainers: list[subprocess.Popen[str]] = []
    try:
        for index, sidecar in enumerate(sidecars):
            task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            env = {"TF_CONFIG": json.dumps(task), "DISTRIBUTED_INPUT_DIR": str(sidecar.shared)}
            trainers.append(
                subprocess.Popen(
                    [sys.executable, "-m", f"{package}.{module}", *arguments],
                    env={**os.environ, **env},
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        outputs = [trainer.communicate(timeout=SECONDS) for trainer in trainers]
    finally:
        for trainer in trainers:
            trainer.kill()
            trainer.wait()
    for trainer, (_, errors) in zip(trainers, outputs, strict=True):
        assert trainer.returncode == 0, errors[-4000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]
