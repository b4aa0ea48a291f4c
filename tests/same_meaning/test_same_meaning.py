"""Random pipelines, and those that differed once, give what TensorFlow gives in one process.

They run in a process of their own: TensorFlow needs two logical devices there.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

KNOWN: dict[int, str] = {}
"""Seeds of small cases that differ today, with the reason."""


def _run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testing.same_meaning", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_cases_that_differed_once_give_what_tensorflow_gives() -> None:
    result = _run("--regressions")

    assert result.returncode == 0, result.stdout + result.stderr[-2000:]


@pytest.mark.timeout(900)
def test_small_pipelines_give_what_tensorflow_gives() -> None:
    known = [str(seed) for seed in KNOWN]
    result = _run("--n", "100", "--seed", "0", "--small", "--shrink-seconds", "0", "--skip", *known)

    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    assert " cases in " in result.stdout
