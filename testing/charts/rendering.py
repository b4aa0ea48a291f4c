"""Runs helm on the chart."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from testing.cluster.binaries import binary

CHART = Path(__file__).parents[2] / "charts" / "distributed-input"
RELEASE = "dinput"
NAME = "dinput-distributed-input"
"""What the chart makes of the release's name."""

Manifest = dict[str, Any]


def helm(*command: str | Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run helm; its output. Does not raise where it fails."""
    return subprocess.run(
        [binary("helm"), *command], capture_output=True, text=True, timeout=seconds
    )


def rendered(namespace: str, *values: str) -> str:
    """The chart's YAML; values: `key=value`, or `key=json` after `json:`."""
    done = helm("template", RELEASE, CHART, "--namespace", namespace, *_flags(values))
    assert done.returncode == 0, done.stderr
    return done.stdout


def manifests(namespace: str, *values: str) -> list[Manifest]:
    """The chart's objects, without those of `helm test`."""
    found = [one for one in yaml.safe_load_all(rendered(namespace, *values)) if one]
    return [one for one in found if "helm.sh/hook" not in one["metadata"].get("annotations", {})]


def one(objects: list[Manifest], kind: str, ending: str = "") -> Manifest:
    """The only object of a kind, or the only one whose name ends so."""
    (found,) = (
        each
        for each in objects
        if each["kind"] == kind and each["metadata"]["name"].endswith(ending)
    )
    return found


def _flags(values: tuple[str, ...]) -> list[str]:
    flags = []
    for value in values:
        json_text = value.removeprefix("json:")
        flags += ["--set-json" if json_text != value else "--set", json_text]
    return flags
