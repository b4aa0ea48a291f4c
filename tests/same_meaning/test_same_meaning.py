"""Random pipelines, and those that differed once, give what TensorFlow gives in one process.

They run in a process of their own: TensorFlow needs two logical devices there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest


def _run(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testing.same_meaning", *flags]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.timeout(900)
def test_cases_that_differed_once_give_what_tensorflow_gives() -> None:
    result = _run("--regressions")

    assert result.returncode == 0, result.stdout + result.stderr[-2000:]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cases", [("--n", "100", "--small"), ("--n", "200")])
def test_random_pipelines_give_what_tensorflow_gives(cases: Sequence[str]) -> None:
    result = _run(*cases, "--seed", "0", "--shrink-seconds", "0")

    assert result.returncode == 0, result.stdout + result.stderr[-2000:]
    assert " cases in " in result.stdout
