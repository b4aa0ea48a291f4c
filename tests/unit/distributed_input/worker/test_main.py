"""Errors in the worker's flags are reported before TensorFlow is imported."""

from __future__ import annotations

import subprocess
import sys

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
