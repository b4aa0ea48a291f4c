"""`make bench` as a developer runs it, with few and short measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing.bench.case import OURS, OURS_MEMORY, SERVICE

ROOT = Path(__file__).parents[3]


def test_an_ordinary_pipeline_between_hosts(tmp_path):
    pytest.importorskip("tensorflow")
    command = [sys.executable, "-m", "testing.bench", "--quick", "--out", str(tmp_path)]
    command += ["--families", "ordinary", "--only", "records"]
    command += ["--systems", "service", "ours", "ours-memory"]
    command += ["--one-host"] if os.geteuid() else []
    subprocess.run(command, cwd=ROOT, check=True)
    (case,) = json.loads((tmp_path / "results.json").read_text())["cases"]
    (measured,) = case["rounds"]
    assert set(measured) == {SERVICE, OURS, OURS_MEMORY}
    for name, found in measured.items():
        servers = {"dispatcher", "worker"} | ({"sidecar"} if name != SERVICE else set())
        assert set(found["cpu"]) == set(found["switches"]) == {"trainer"} | servers
        for part in (found, found["start"]):
            # Whole batches, each with its rows: an id and 128 tokens.
            assert part["rows"] == 256 * part["batches"] > 0
            assert part["bytes"] == 8 * 129 * part["rows"]
        assert found["start"]["first_batch"] > 0
        assert found["switches"]["trainer"] > 0
    assert "rate / service" in (tmp_path / "results.md").read_text()
