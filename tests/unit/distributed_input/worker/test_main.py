"""Errors in the worker's flags are reported before TensorFlow is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "--dispatcher"),
        (["--dispatcher", "localhost:1", "--max-streams", "many"], "--max-streams"),
    ],
)
def test_a_wrong_flag_is_reported_without_tensorflow(flags: list[str], message: str) -> None:
    code = (
        "import sys\n"
        "from distributed_input.worker.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    assert 'tensorflow' not in sys.modules\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *flags], capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_without_tensorflow_the_error_names_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text('raise ModuleNotFoundError("", name="tensorflow")')
    command = (sys.executable, "-m", "distributed_input.worker", "--dispatcher", "localhost:1")
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "distributed-input worker: workers need tensorflow, which is not installed: "
        "pip install 'distributed-input[worker]'"
    )
