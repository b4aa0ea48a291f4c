"""A Python interface to the kubectl command."""

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


class KubectlError(AssertionError):
    """A kubectl command failed. The message has its stderr."""


@dataclass(frozen=True)
class Kubectl:
    """kubectl for one cluster, and one namespace of it."""

    kubeconfig: Path
    namespace: str = "default"

    def __call__(self, *command: str | Path, text: str = "", timeout: float = _SECONDS) -> str:
        """Run a command with `text` as stdin and return its stdout. Raises KubectlError."""
        options = (f"--kubeconfig={self.kubeconfig}", f"-n{self.namespace}")
        result = subprocess.run(
            [binary("kubectl"), *options, *command],
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if result.returncode:
            raise KubectlError(
                f"kubectl {' '.join(map(str, command))}: {result.stderr}{result.stdout}"
            )
        return result.stdout

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Create or change objects."""
        self("apply", "-f", "-", text=yaml.safe_dump_all(manifests))

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object."""
        found: dict[str, Any] = json.loads(self("get", kind, name, "-ojson"))
        return found

    def list(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        """Return the objects with these labels, in the syntax of `--selector`."""
        found: list[dict[str, Any]] = json.loads(self("get", kind, f"-l{labels}", "-ojson"))[
            "items"
        ]
        return found

    def wait(self, what: str, condition: str, seconds: int = 120) -> None:
        """Wait until an object (`pod/x`) has a condition (`Ready`) or field (`jsonpath={..}=x`)."""
        for_argument = condition if "=" in condition else f"condition={condition}"
        arguments = ("wait", what, f"--for={for_argument}", f"--timeout={seconds}s")
        self(*arguments, timeout=seconds + _SECONDS)
