"""Builds the artefacts of a release into one folder."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from testing.cluster.binaries import binary, cache_dir

ROOT = Path(__file__).parents[2]
CHART = "distributed-input"
"""Name of the chart, and of its folder in `charts/`."""
IMAGES = tuple(f"distributed-input-{part}" for part in ("operator", "sidecar", "worker"))
"""Names of the images, in the chart's values and in a registry."""
ARM64_COMPILER = "aarch64-linux-gnu-g++"
"""The cross-compiler of Debian and Ubuntu, in the package g++-aarch64-linux-gnu."""


def uv(root: Path = ROOT) -> Path:
    """Return the path of the uv that `make` installs."""
    found = re.search(r"^UV_VERSION := (\S+)$", (root / "Makefile").read_text(), re.MULTILINE)
    assert found, "the Makefile sets no UV_VERSION"
    return cache_dir() / f"uv-{found[1]}" / "bin" / "uv"


def build_distributions(out: Path, root: Path = ROOT) -> None:
    """Write the sdists of both distributions, and the wheels that are built from them.

    On x86-64 with a cross-compiler, also the wheel with native ops for arm64.
    """
    build = (uv(root), "build", "--quiet", "--no-create-gitignore", "--out-dir", out)
    subprocess.run((*build, "--all-packages"), cwd=root, check=True)
    if platform.machine() == "x86_64" and shutil.which(ARM64_COMPILER):
        env = {**os.environ, "CXX": ARM64_COMPILER, "DISTRIBUTED_INPUT_MACHINE": "aarch64"}
        one = ("--wheel", "--package", "distributed-input")
        subprocess.run((*build, *one), cwd=root, check=True, env=env)


def build_chart(out: Path, registry: str, root: Path = ROOT) -> Path:
    """Write the chart's archive. Its images come from `registry`; "": names without a registry."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / CHART
        shutil.copytree(root / "charts" / CHART, chart)
        values = chart / "values.yaml"
        values.write_text(add_registry(values.read_text(), registry))
        # helm lists the links that it follows, and has no flag for less.
        command = (binary("helm"), "package", chart, "--destination", out)
        subprocess.run(command, check=True, capture_output=True, text=True)
    (archive,) = out.glob(f"{CHART}-*.tgz")
    return archive


def add_registry(values: str, registry: str) -> str:
    """Return the chart's values with images of a registry, such as `registry.example/team`."""
    if not registry:
        return values
    for image in IMAGES:
        line = f"repository: {image}\n"
        assert values.count(line) == 1, f"values.yaml: one line must be {line!r}"
        values = values.replace(line, f"repository: {registry}/{image}\n")
    return values


def files(folder: Path) -> list[Path]:
    """Return the artefacts in a folder by name.

    They are distributions, the chart, the plugin, SBOMs and the provenance.
    """
    endings = ("*.tar.gz", "*.whl", "*.tgz", "*.zip", "*.yaml", "*.cdx.json", "*.intoto.json")
    return sorted(path for ending in endings for path in folder.glob(ending))


def distributions(folder: Path) -> list[Path]:
    """Return the sdists and wheels in a folder, sorted by name."""
    return [path for path in files(folder) if path.suffix in (".gz", ".whl")]
