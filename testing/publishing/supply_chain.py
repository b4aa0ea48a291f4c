"""What an artefact consists of, and where it comes from: SBOMs (CycloneDX) and provenance (SLSA).

The SBOM of an image lists the Python packages of uv.lock that the Dockerfile installs. It does not
list the packages of the base image.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from testing.publishing.artifacts import ROOT, files, uv

PROVENANCE = "provenance.intoto.json"
_SBOM = "distributed-input-{}.cdx.json"
# As in the Dockerfile: the worker's image has the packages of the sidecar's, too.
_PACKAGES = {
    "operator": ("--package", "distributed-input-operator", "--extra", "controller"),
    "sidecar": ("--package", "distributed-input", "--extra", "cli"),
    "worker": ("--package", "distributed-input", "--extra", "cli", "--group", "worker"),
}
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"
_BUILD_TYPE = "https://slsa.dev/buildtypes/make-release/v1"


def build_sboms(out: Path, root: Path = ROOT) -> list[Path]:
    """Write the SBOM of each image. A commit always has the same ones."""
    found = []
    for image, packages in _PACKAGES.items():
        command = (uv(root), "export", "--quiet", "--frozen", "--format", "cyclonedx1.5")
        done = subprocess.run(
            (*command, "--no-default-groups", *packages),
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        )
        sbom: dict[str, Any] = json.loads(done.stdout)
        del sbom["serialNumber"]  # uv makes a random one.
        sbom["metadata"]["timestamp"] = _git(root, "log", "-1", "--format=%cI")
        path = out / _SBOM.format(image)
        path.write_text(json.dumps(sbom, indent=1, sort_keys=True) + "\n")
        found.append(path)
    return found


def build_provenance(out: Path, version: str, root: Path = ROOT) -> Path:
    """Write which commit and which inputs the artefacts in a folder were built from.

    The signature of the release is also that of this file: see `publish`.
    """
    commit = _git(root, "rev-parse", "HEAD")
    statement = {
        "_type": _STATEMENT,
        "subject": [_resource(one) for one in files(out) if one.name != PROVENANCE],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": {"command": f"make release VERSION={version}"},
                "internalParameters": {"changed": bool(_git(root, "status", "--porcelain"))},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    _resource(root / "uv.lock"),
                    _resource(root / "Dockerfile"),
                    {"name": "base image", "uri": base_image((root / "Dockerfile").read_text())},
                ],
            },
            "runDetails": {"builder": {"id": "make"}, "metadata": {"invocationId": commit}},
        },
    }
    path = out / PROVENANCE
    path.write_text(json.dumps(statement, indent=1) + "\n")
    return path


def base_image(dockerfile: str) -> str:
    """Return the base image of a Dockerfile, with its digest if it has one."""
    found = re.search(r"^ARG BASE_IMAGE=(\S+)$", dockerfile, re.MULTILINE)
    assert found, "the Dockerfile has no line ARG BASE_IMAGE=IMAGE"
    return found[1]


def _resource(path: Path) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"name": path.name, "digest": {"sha256": digest}}


def _git(root: Path, *command: str) -> str:
    done = subprocess.run(("git", "-C", root, *command), capture_output=True, text=True, check=True)
    return done.stdout.strip()
