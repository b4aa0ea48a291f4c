"""The version: one command writes it to all files that need it.

Programs read it from `sidecar/pyproject.toml`. The metadata of distributions and of the chart is
static, so other files have copies. Between two releases, it is a development version of the next
one: X.Y.Z.devN for Python, and X.Y.Z-dev.N, a semantic version, for the chart, its images and the
plugin.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from testing.publishing.artifacts import ROOT, uv

_PLACES = {
    "sidecar/pyproject.toml": (r'^version = "(.+)"$',),
    "operator/pyproject.toml": (r'^version = "(.+)"$', r'^    "distributed-input~=(.+)",$'),
    "charts/distributed-input/Chart.yaml": (r"^version: (.+)$", r"^appVersion: (.+)$"),
}
_VERSION = re.compile(r"(\d+\.\d+\.\d+)(?:\.dev(\d+))?")


def current(root: Path = ROOT) -> str:
    """Return the version of a checkout."""
    ((_, _, found),) = (one for one in _copies(root) if one[0] == "sidecar/pyproject.toml")
    return found


def semantic(version: str) -> str:
    """Return a Python version as a semantic version.

    >>> semantic("1.2.3"), semantic("1.2.3.dev4")
    ('1.2.3', '1.2.3-dev.4')
    """
    return _VERSION.sub(
        lambda found: f"{found[1]}-dev.{found[2]}" if found[2] else found[1], version
    )


def _in_file(version: str, file: str) -> str:
    return semantic(version) if file.startswith("charts/") else version


def write(version: str, root: Path = ROOT) -> None:
    """Write a version to all files, also to the lock.

    Raises:
        ValueError: the version is neither X.Y.Z nor X.Y.Z.devN.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(
            f"VERSION={version}: must be three numbers, such as 1.2.3, or 1.2.3.dev0 for the "
            "development of 1.2.3"
        )
    for file, pattern, found in list(_copies(root)):
        path = root / file
        line = re.search(pattern, path.read_text(), re.MULTILINE)
        assert line
        new = line[0].replace(found, _in_file(version, file))
        path.write_text(path.read_text().replace(line[0], new, 1))
    subprocess.run((uv(root), "lock", "--quiet"), cwd=root, check=True)


def problems(version: str, root: Path = ROOT) -> list[str]:
    """Return one line for each file with another version, and its remedy."""
    return [
        f"{file}: has version {found}. Run: make version VERSION={version}"
        for file, _, found in _copies(root)
        if found != _in_file(version, file)
    ]


def _copies(root: Path) -> list[tuple[str, str, str]]:
    """Return (file, pattern, version) for each place."""
    copies = []
    for file, patterns in _PLACES.items():
        text = (root / file).read_text()
        for pattern in patterns:
            found = re.search(pattern, text, re.MULTILINE)
            assert found, f"{file}: no line matches {pattern}"
            copies.append((file, pattern, found[1]))
    return copies
