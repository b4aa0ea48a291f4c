"""Trainers that are processes of their own, each beside its sidecar."""

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
Told = list[dict[str, Any]]
"""What each trainer said."""


def told_by(
    module: str, sidecars: Sequence[Sidecar], *arguments: str, of: str = "testing.compat"
) -> Told:
    """Run `python -m OF.MODULE` beside each sidecar, and give what they print, as JSON.

    They learn of one another by TF_CONFIG. Raises AssertionError with what one that failed wrote.
    """
    workers = [f"127.0.0.1:{port}" for port in free_ports(len(sidecars))]
    trainers: list[subprocess.Popen[str]] = []
    try:
        for index, sidecar in enumerate(sidecars):
            task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
            env = {"TF_CONFIG": json.dumps(task), "DISTRIBUTED_INPUT_DIR": str(sidecar.shared)}
            trainers.append(
                subprocess.Popen(
                    [sys.executable, "-m", f"{of}.{module}", *arguments],
                    env={**os.environ, **env},
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        said = [trainer.communicate(timeout=SECONDS) for trainer in trainers]
    finally:
        for trainer in trainers:
            trainer.kill()
            trainer.wait()
    for trainer, (_, errors) in zip(trainers, said, strict=True):
        assert trainer.returncode == 0, errors[-4000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in said]
