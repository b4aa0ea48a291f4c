"""The code of earlier releases, from the history of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

COMMITS = {"0.1.0": "f8b089255a45ab879294bedc59cd42c2fe95b441"}
"""The commit of each release that this operator supports: its images may run beside ours."""

_ROOT = Path(__file__).parents[2]


def extract(release: str, folder: Path, *paths: str) -> None:
    """Write files of a release to a folder. Skip the test in a copy without the history.

    Args:
        release: a key of COMMITS.
        folder: existing folder.
        paths: of files and folders in the repository. Default: all.

    Raises:
        AssertionError: the repository lacks the commit.
    """
    shallow = ("git", "-C", str(_ROOT), "rev-parse", "--is-shallow-repository")
    found = subprocess.run(shallow, capture_output=True, text=True)
    if found.stdout.strip() != "false":
        pytest.skip(f"release {release} is not in this copy. Run `git fetch --unshallow`")
    command = ("git", "-C", str(_ROOT), "archive", COMMITS[release], *paths)
    archive = subprocess.run(command, capture_output=True)
    assert archive.returncode == 0, (
        f"release {release} is not in this repository: {archive.stderr.decode()}"
    )
    subprocess.run(("tar", "-x", "-C", str(folder)), input=archive.stdout, check=True)
