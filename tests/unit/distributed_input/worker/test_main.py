"""Errors in the worker's flags are reported before TensorFlow is imported."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
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


@pytest.mark.slow
def test_sets_of_strings_have_the_same_order_in_all_workers(tmp_path: Path) -> None:
    (tmp_path / "tensorflow.py").write_text("raise RuntimeError(f\"order {hash('a')}\")")
    command = (sys.executable, "-m", "distributed_input.worker", "--dispatcher", "localhost:1")
    env = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}

    def order(**more: str) -> str:
        found = subprocess.run(
            command,
            env={**env, "PYTHONPATH": str(tmp_path), **more},
            capture_output=True,
            text=True,
        )
        return re.findall(r"order -?\d+", found.stderr)[-1]

    assert order() == order() == order(PYTHONHASHSEED="0")
    assert order(PYTHONHASHSEED="1") != order()


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_drains_accuses_no_row(tmp_path: Path) -> None:
    """A pod that is deleted is killed at the end of its grace period."""
    ready = tmp_path / "ready"
    with socket.create_server(("127.0.0.1", 0)) as dispatcher:  # accepts, and never responds
        address = "{}:{}".format(*dispatcher.getsockname())
        command = [sys.executable, "-m", "distributed_input.worker", "--dispatcher", address]
        command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready)]
        worker = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)})
        try:
            eventually(ready.exists)
            (notes,) = tmp_path.glob("distributed-input-worker*/*/computing")
            worker.terminate()
            eventually(lambda: not notes.exists())
            assert notes.parent.exists(), "it is still draining"
        finally:
            worker.kill()
            worker.wait()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)
