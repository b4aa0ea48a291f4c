"""kubectl, as a user types it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testing.cluster.binaries import binary

_SECONDS = 180.0


class Failed(AssertionError):
    """A command said no; its stderr."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl for one cluster, and one namespace of it."""

    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *command: str | Path, text: str = "") -> str:
        """Run a command; `text` is its stdin. Returns stdout, raises Failed with stderr."""
        where = (f"--kubeconfig={self.kubeconfig}", f"-n{self.namespace}")
        done = subprocess.run(
            [binary("kubectl"), *where, *command],
            input=text,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode:
            raise Failed(f"kubectl {' '.join(map(str, command))}: {done.stderr}{done.stdout}")
        return done.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self("apply", "-f", "-", text=yaml.safe_dump_all(manifests))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object."""
        found: dict[str, Any] = json.loads(self("get", kind, name, "-ojson"))
        return found

    def list(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        """Objects with these labels, as in `--selector`."""
        found: list[dict[str, Any]] = json.loads(self("get", kind, f"-l{labels}", "-ojson"))[
            "items"
        ]
        return found

    def wait(self, what: str, condition: str, seconds: int = 120) -> None:
        """Until an object has a condition: `pod/x`, `Ready`; or a field: `jsonpath={...}=x`."""
        wanted = condition if "=" in condition else f"condition={condition}"
        self("wait", what, f"--for={wanted}", f"--timeout={seconds}s")
