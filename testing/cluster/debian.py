"""Debian's packages, unpacked into a folder: nothing is installed on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_SECONDS = 300.0


class Missing(Exception):
    """This machine has no apt-get; one line."""


def unpack(package: str, root: Path) -> None:
    """A package below `root`, with the libraries that it wants; what else apt would install it
    does without. `root` must not be there.

    Raises:
        Missing: this machine is no Debian.
        subprocess.CalledProcessError: it could not be fetched; stderr has said why.
    """
    if not shutil.which("apt-get"):
        raise Missing(f"{package} is not installed, and this machine has no apt-get to fetch it")
    if os.geteuid() == 0:  # else the lists are what they are
        run("apt-get", "update", "--quiet=2")
    plan = run("apt-get", "install", "--simulate", "--no-install-recommends", package)
    names = {line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")}
    libraries = [one for one in names if one.startswith(("lib", "ocl-")) and "-test" not in one]
    with tempfile.TemporaryDirectory() as debs:
        run("apt-get", "download", "--quiet=2", package, *libraries, folder=debs)
        root.mkdir(parents=True)
        for deb in Path(debs).iterdir():
            run("dpkg-deb", "--extract", deb, root)


def run(*command: str | Path, folder: str | None = None) -> str:
    """What it prints on stdout."""
    done = subprocess.run(
        command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, timeout=_SECONDS
    )
    return done.stdout
