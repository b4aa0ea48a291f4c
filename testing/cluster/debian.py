"""Unpacks Debian packages into a folder, without installing them on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_SECONDS = 300.0


class AptMissingError(Exception):
    """This machine has no apt-get. The message has one line."""


def unpack(package: str, root: Path, *others: str) -> None:
    """Unpack a package, its libraries and `others` below `root`, which must not exist.

    More packages that apt would install are skipped.

    Raises:
        AptMissingError: this machine has no apt-get.
        subprocess.CalledProcessError: the download failed. The reason is on stderr.
    """
    if not shutil.which("apt-get"):
        raise AptMissingError(
            f"{package} is not installed, and this machine has no apt-get to fetch it"
        )
    if os.geteuid() == 0:  # other users cannot update the package lists
        run("apt-get", "update", "--quiet=2")
    plan = run("apt-get", "install", "--simulate", "--no-install-recommends", package)
    names = {line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")}
    libraries = [one for one in names if one.startswith(("lib", "ocl-")) and "-test" not in one]
    with tempfile.TemporaryDirectory() as debs:
        run("apt-get", "download", "--quiet=2", package, *libraries, *others, folder=debs)
        root.mkdir(parents=True)
        for deb in Path(debs).iterdir():
            run("dpkg-deb", "--extract", deb, root)


def run(*command: str | Path, folder: str | None = None) -> str:
    """Run a command and return its stdout."""
    done = subprocess.run(
        command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, timeout=_SECONDS
    )
    return done.stdout
