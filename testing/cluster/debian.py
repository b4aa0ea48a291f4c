"""Unpacks Debian packages into a folder, without installing them on this machine."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

_SECONDS = 300.0


class AptMissingError(Exception):
    """This machine has no apt-get. The message has one line."""


def unpack(package: str, root: Path, *others: str, seconds: float = 3 * _SECONDS) -> None:
    """Unpack a package, its libraries and `others` below `root`, which must not exist.

    More packages that apt would install are skipped. `seconds` limits the time of all commands.

    Raises:
        AptMissingError: this machine has no apt-get.
        subprocess.SubprocessError: the download failed. The reason is on stderr.
    """
    end = time.monotonic() + seconds
    if not shutil.which("apt-get"):
        raise AptMissingError(
            f"{package} is not installed, and this machine has no apt-get to fetch it"
        )
    if os.geteuid() == 0:  # other users cannot update the package lists
        run("apt-get", "update", "--quiet=2", end=end)
    plan = run("apt-get", "install", "--simulate", "--no-install-recommends", package, end=end)
    names = {line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")}
    libraries = [one for one in names if one.startswith(("lib", "ocl-")) and "-test" not in one]
    with tempfile.TemporaryDirectory() as debs:
        wanted = (package, *libraries, *others)
        run("apt-get", "download", "--quiet=2", *wanted, folder=debs, end=end)
        root.mkdir(parents=True)
        for deb in Path(debs).iterdir():
            run("dpkg-deb", "--extract", deb, root)


def run(*command: str | Path, folder: str | None = None, end: float = math.inf) -> str:
    """Run a command until the monotonic time `end` at most, and return its stdout."""
    limit = min(_SECONDS, max(0.0, end - time.monotonic()))
    done = subprocess.run(
        command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True, timeout=limit
    )
    return done.stdout
