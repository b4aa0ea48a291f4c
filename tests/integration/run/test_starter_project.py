"""The project that `distributed-input init` writes runs as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from distributed_input import cli

CLI = (sys.executable, "-m", "distributed_input.cli")


def test_a_new_project_is_valid_and_trains(tmp_path):
    pytest.importorskip("tensorflow")
    assert cli.main(["init", str(tmp_path / "photos")]) == 0

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CLI, *arguments],
            cwd=tmp_path / "photos",
            env={**os.environ, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
        )

    checked = run("validate", "input.yaml")
    assert checked.returncode == 0, checked.stdout
    trained = run("run", "input.yaml", "--report", "r.json", "--", sys.executable, "train.py")
    assert trained.returncode == 0, trained.stderr
    first, second = (float(line.rpartition("loss: ")[2]) for line in losses(trained.stdout))
    assert second < first
    report = json.loads((tmp_path / "photos" / "r.json").read_text())["inputs"]["photos"]
    assert (report["epochs"], report["rows"]) == (2, 40_000)


def losses(output: str) -> list[str]:
    return [line for line in output.splitlines() if "loss: " in line]
