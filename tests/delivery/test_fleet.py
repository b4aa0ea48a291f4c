"""How many CPUs of workers compute, in virtual time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_workers_compute_the_rows_of_a_step_for_all_partitions_at_once() -> None:
    """A step needs 6.4 MB of each partition, which is more than the queue of a split has."""
    size = ["--workers", "4", "--cores", "1", "--splits", "32", "--rows", "400"]
    rows = ["--row-bytes", "200000", "--row-seconds", "0.02"]
    command = [sys.executable, "-m", "testing.delivery.fleet", *size, *rows]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-4000:]
    (busy,) = re.findall(r"\| ([\d.]+) \|$", done.stdout.strip())
    assert float(busy) > 0.8
