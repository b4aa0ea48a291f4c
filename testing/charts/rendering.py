"""Functions that run helm on the chart."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from testing.cluster.binaries import binary

CHART = Path(__file__).parents[2] / "charts" / "distributed-input"
RELEASE = "dinput"
NAME = "dinput-distributed-input"
"""Name of the chart's objects for this release name."""

OPERATOR, WEBHOOK = NAME, f"{NAME}-webhook"
"""Names of the Deployments."""

Manifest = dict[str, Any]


def helm(*command: str | Path, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run helm and return the completed process. Does not raise if helm fails."""
    return subprocess.run(
        [binary("helm"), *command], capture_output=True, text=True, timeout=seconds
    )


def render(namespace: str, *values: str, kubernetes: str = "") -> str:
    """Return the chart's YAML. Each value is `key=value`, or `json:key=json`.

    kubernetes: the version to render for. Default: that of the test cluster.
    """
    version = ["--kube-version", kubernetes] if kubernetes else []
    flags = [*version, *_flags(values)]
    result = helm("template", RELEASE, CHART, "--namespace", namespace, *flags)
    assert result.returncode == 0, result.stderr
    return result.stdout


def manifests(namespace: str, *values: str) -> list[Manifest]:
    """Return the chart's objects, without those of `helm test`."""
    found = [one for one in yaml.safe_load_all(render(namespace, *values)) if one]
    return [one for one in found if "helm.sh/hook" not in one["metadata"].get("annotations", {})]


def find_one(objects: list[Manifest], kind: str, ending: str = "") -> Manifest:
    """Return the only object of a kind whose name has this ending."""
    (found,) = (
        each
        for each in objects
        if each["kind"] == kind and each["metadata"]["name"].endswith(ending)
    )
    return found


def container(name: str, *values: str) -> dict[str, Any]:
    """Return the container of the Deployment with this name."""
    pod = find_one(manifests("here", *values), "Deployment", name)["spec"]["template"]["spec"]
    (found,) = pod["containers"]
    return dict(found)


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of everything that a role allows."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def _flags(values: tuple[str, ...]) -> list[str]:
    flags = []
    for value in values:
        json_text = value.removeprefix("json:")
        flags += ["--set-json" if json_text != value else "--set", json_text]
    return flags
