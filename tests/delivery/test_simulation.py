"""The delivery in virtual time: the same seed, seeds without a problem, and each guard."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testing.delivery.cases import CASES, GUARDS

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, expected: int = 0) -> str:
    """Run `python -m testing.delivery`, which needs a process of its own. Return its output."""
    command = [sys.executable, "-m", "testing.delivery", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == expected, done.stdout[-20_000:] + done.stderr[-4000:]
    return done.stdout


def test_one_seed_gives_one_execution() -> None:
    """The hash of a trace depends on each switch between tasks."""
    runs = [simulate("--n", "40", "--seed", "7", "--hashes", "--jobs", jobs) for jobs in "12"]
    lines = [sorted(re.findall(r"seed \d+: ok hash .*", run)) for run in runs]
    assert len(lines[0]) == 40
    assert lines[0] == lines[1]


def test_a_trace_does_not_change_the_execution() -> None:
    quiet = simulate("--n", "1", "--seed", "3", "--hashes")
    traced = simulate("--n", "1", "--seed", "3", "--hashes", "-v")
    (expected,) = re.findall(r"hash \w+ \d+ switches", quiet)
    assert expected in traced
    assert "dispatcher answers" in traced


def test_no_schedule_loses_or_repeats_a_row() -> None:
    assert "300 schedules, 0 failed" in simulate("--n", "300", "--seed", "1")


@pytest.mark.parametrize("seed", [19186, 23428, 34421])
def test_a_schedule_that_once_failed_passes(seed: int) -> None:
    assert " 0 failed" in simulate("--n", "1", "--seed", str(seed))


def test_splits_resume_from_saved_states() -> None:
    events = simulate("--n", "4", "--case", "resumed", "-v")
    assert "log: resuming a split from a saved state" in events


@pytest.mark.parametrize("case", CASES)
def test_a_case_passes(case: str) -> None:
    assert " 0 failed" in simulate("--n", "12", "--case", case)


def test_each_guard_is_needed() -> None:
    """Without it, one of a few hundred schedules fails."""
    found = simulate("--guards")
    assert len(found.splitlines()) == len(GUARDS)
    assert "NOT FOUND" not in found


def test_a_failed_seed_is_shown_with_its_schedule() -> None:
    bug = ("--mutant", "broken_stream_ends_split")
    failed = simulate("--n", "100", "--jobs", "1", "--fail-fast", *bug, expected=1)
    assert "lost" in failed
    assert "repeat: python -m testing.delivery --n 1 --seed" in failed
    ran = int(failed.splitlines()[-1].split(" schedules, 1 failed")[0])
    assert ran < 100, "the last line counts the schedules that ran"
