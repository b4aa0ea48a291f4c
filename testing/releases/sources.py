"""The code of the previous commit, from the history of this repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PREVIOUS = "HEAD~1"
"""Its images may run beside those of this commit, because an upgrade and a rollback replace pods
one by one. Once there are releases, their tags take its place."""

_ROOT = Path(__file__).parents[2]


def extract(folder: Path, *paths: str) -> None:
    """Write files of the previous commit to a folder. Skip the test if it lacks one of them.

    Args:
        folder: existing folder.
        paths: of files and folders in the repository. Default: all.
    """
    command = ("git", "-C", str(_ROOT), "archive", PREVIOUS, *paths)
    archive = subprocess.run(command, capture_output=True)
    if archive.returncode:
        cause = archive.stderr.decode().strip()
        pytest.skip(f"{PREVIOUS}: {cause}. In a shallow copy, run `git fetch --unshallow`")
    subprocess.run(("tar", "-x", "-C", str(folder)), input=archive.stdout, check=True)
