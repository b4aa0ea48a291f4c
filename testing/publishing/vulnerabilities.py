"""Searches uv.lock for known vulnerabilities: python -m testing.publishing.vulnerabilities

Exit status: 0, none is known; 1, some are; 3, the database could not be reached, so that nothing
is known.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from testing.publishing.artifacts import ROOT, uv

DATABASE = "https://api.osv.dev/"
UNREACHABLE = 3
_FOUND = 1
_SECONDS = 300.0


def search(database: str = DATABASE, root: Path = ROOT) -> int:
    """Print the vulnerabilities of all locked versions. Return the exit status."""
    command = (uv(root), "audit", "--frozen", "--preview-features", "audit-command")
    done = subprocess.run(
        (*command, "--service-url", database),
        cwd=root,
        text=True,
        timeout=_SECONDS,
        stdout=-1,
        stderr=-2,
    )
    print(done.stdout, end="")
    if done.returncode in (0, _FOUND):
        return done.returncode
    print(
        f"vulnerabilities: NOT CHECKED: no answer from {database}. Run it where this server can be "
        "reached, or set DATABASE to a mirror of OSV",
        file=sys.stderr,
    )
    return UNREACHABLE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", default=DATABASE, help="URL of a service with OSV's API")
    sys.exit(search(parser.parse_args().database or DATABASE))
