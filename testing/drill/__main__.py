"""Run the drill: `python -m testing.drill [CASE ...]`. The exit status is 0 if all are named."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from testing.drill.cases import CASES, Case, running

_CLI = (sys.executable, "-m", "distributed_input.cli")
_BEFORE_SECONDS = 20.0
"""Time that a cause lasts before the question."""


def main() -> int:
    """Print what `explain` names for each case."""
    chosen = [int(one) for one in sys.argv[1:]] or range(len(CASES))
    wrong = 0
    for number in chosen:
        case = CASES[number]
        found, seconds = _explained(case)
        wrong += found["cause"] != case.expected
        mark = "ok" if found["cause"] == case.expected else f"WRONG, expected {case.expected}"
        print(f"{number} {case.what}: {found['cause']} ({mark}) after {seconds:.0f} s", flush=True)
        print(f"    {found['text']}\n    next: {found['next']}", flush=True)
    return int(bool(wrong))


def _explained(case: Case) -> tuple[dict[str, Any], float]:
    """Return the diagnosis of the only trainer, and how long `explain` took."""
    with running(case):
        time.sleep(_BEFORE_SECONDS)
        began = time.monotonic()
        done = subprocess.run((*_CLI, "explain", "-o", "json"), capture_output=True, text=True)
        seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["trainers"]
    return found, seconds


if __name__ == "__main__":
    sys.exit(main())
