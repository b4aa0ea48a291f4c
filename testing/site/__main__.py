"""`python -m testing.site`: build the documentation site. A warning is an error.

Links to files and headings that do not exist are warnings, and pages that the navigation lacks.
"""

from __future__ import annotations

import os
import subprocess
import sys

from testing.site import reference
from testing.site.stage import ROOT, stage

SOURCE = ROOT / "build" / "site-source"


def main() -> int:
    """Build the site in build/site; return the exit status of MkDocs."""
    stage(SOURCE)
    reference.write(SOURCE)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
