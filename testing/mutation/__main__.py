"""The command `python -m testing.mutation`; see the package's docstring."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testing.mutation.guards import GUARDS, Guard

ROOT = Path(__file__).parents[2]
SOURCE = Path("sidecar/src/distributed_input")
_SECONDS = 300


def main(argv: Sequence[str] | None = None) -> int:
    """Run the selected guards. Return 1 if a removal was not reported."""
    parser = argparse.ArgumentParser(prog="python -m testing.mutation", description=__doc__)
    parser.add_argument("guards", nargs="*", help="names of guards. Default: all")
    names = parser.parse_args(argv).guards
    unknown = set(names) - {guard.name for guard in GUARDS}
    if unknown:
        parser.error(
            f"no guard {', '.join(sorted(unknown))}. Use one of testing/mutation/guards.py"
        )
    survivors = 0
    for guard in GUARDS:
        if not names or guard.name in names:
            began = time.monotonic()
            reported = is_reported(guard)
            survivors += not reported
            result = "reported" if reported else "SURVIVED"
            print(f"{result:9} {time.monotonic() - began:5.0f} s  {guard.name}", flush=True)
    return 1 if survivors else 0


def is_reported(guard: Guard) -> bool:
    """Return whether the guard's test fails without the guard.

    Raises:
        ValueError: the source does not contain the guard once, or its test cannot run.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "distributed_input"
        shutil.copytree(ROOT / SOURCE, copy)
        remove(guard, copy / guard.module)
        environment = {**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", guard.test]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return True  # the test waits for what never comes
    if done.returncode not in (0, 1):
        raise ValueError(f"{guard.test} cannot run:\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.returncode == 1


def remove(guard: Guard, module: Path) -> None:
    """Replace the guard's text in a module. Raise ValueError if it does not occur once."""
    text = module.read_text()
    if text.count(guard.text) != 1:
        raise ValueError(
            f"{guard.module} contains the text of {guard.name!r} {text.count(guard.text)} times, "
            "not once: update testing/mutation/guards.py"
        )
    module.write_text(text.replace(guard.text, guard.replacement))


if __name__ == "__main__":
    sys.exit(main())
