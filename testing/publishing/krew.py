"""The kubectl plugin `dinput` for krew: an archive with a script, and its manifest."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path
from typing import Any

import yaml

from testing.publishing.artifacts import ROOT
from testing.publishing.version import semantic

NAME = "dinput"
MANIFEST = f"{NAME}.yaml"
SCRIPT = Path(__file__).parent / "plugin" / "kubectl-dinput"
_DATE = (1980, 1, 1, 0, 0, 0)
"""All builds of a commit have equal archives."""
_DESCRIPTION = """\
Shows why the trainers of a DistributedInput wait, with figures and the next step (explain), the
rates of trainers and workers (top, status, dashboard), logs, and problems of the installation
(doctor). It runs the command distributed-input, which a Python package installs.
"""
_CAVEATS = """\
The plugin needs the command distributed-input, with the release of your cluster:
  pip install distributed-input
"""


def build_plugin(out: Path, version: str, download_url: str) -> None:
    """Write the plugin's archive, and its manifest.

    Args:
        out: folder.
        version: version of the release.
        download_url: URL of the folder that the archive is published in.
    """
    archive = out / f"{SCRIPT.name}-{version}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path, mode in ((SCRIPT, 0o755), (ROOT / "LICENSE", 0o644)):
            info = zipfile.ZipInfo(path.name, _DATE)
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(info, path.read_bytes())
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    document = manifest(version, f"{download_url.rstrip('/')}/{archive.name}", digest)
    (out / MANIFEST).write_text(yaml.safe_dump(document, sort_keys=False))


def manifest(version: str, url: str, digest: str) -> dict[str, Any]:
    """Return the manifest of an archive at `url`."""
    systems = {"key": "os", "operator": "In", "values": ["darwin", "linux"]}
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": f"v{semantic(version)}",
            "shortDescription": "Explain why trainers wait for their input",
            "description": _DESCRIPTION,
            "caveats": _CAVEATS,
            "platforms": [
                {
                    "selector": {"matchExpressions": [systems]},
                    "uri": url,
                    "sha256": digest,
                    "bin": SCRIPT.name,
                }
            ],
        },
    }


def problems(document: dict[str, Any]) -> list[str]:
    """Return what krew refuses in a manifest: the rules of its `ValidatePlugin`."""
    found = []
    spec, name = document.get("spec", {}), document.get("metadata", {}).get("name", "")
    if document.get("apiVersion") != "krew.googlecontainertools.github.com/v1alpha2":
        found.append("apiVersion")
    if document.get("kind") != "Plugin":
        found.append("kind")
    if not re.fullmatch(r"[\w-]+", name):
        found.append("name")
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-dev\.\d+)?", spec.get("version", "")):
        found.append("version")
    if not re.fullmatch(r"[^\r\n]+", spec.get("shortDescription", "")):
        found.append("shortDescription")
    platforms = spec.get("platforms") or []
    found += [] if platforms else ["platforms"]
    for platform in platforms:
        selector = platform.get("selector") or {}
        keys = [one.get("key") for one in selector.get("matchExpressions", [])]
        keys += selector.get("matchLabels", {})
        if not keys or not set(keys) <= {"os", "arch"}:
            found.append("selector")
        if not re.fullmatch(r"[a-f0-9]{64}", platform.get("sha256", "")):
            found.append("sha256")
        found += [field for field in ("uri", "bin") if not platform.get(field)]
    return found
