"""A process that reads on command, with programs in place of those that import TensorFlow."""

from __future__ import annotations

import subprocess
import sys

import pytest

from distributed_input.api.errors import TerminalError
from distributed_input.runner import process_wrapper
from distributed_input.runner.benchmark.timed_process import TimedProcess, cpu_of_parts

PROGRAM = """
import json, sys
options = json.loads(sys.argv[1])
print(json.dumps({"event": "ready", "batched": options["batched"]}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "begun"}) + "\\n" + json.dumps({"event": "measured", "rows": 3}),
          flush=True)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return the file of a module `timed_program`, which processes can import."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "timed_program.py"


def started(seconds: float = 20.0) -> TimedProcess:
    return TimedProcess("timed_program", {"batched": True}, seconds)


def test_each_command_has_its_answers(program):
    program.write_text(PROGRAM)
    with started() as process:
        assert process.answer("ready") == {"event": "ready", "batched": True}
        for _ in range(2):
            process.ask(seconds=1.0)
            process.answer("begun")
            assert process.answer("measured", 1.0)["rows"] == 3


def test_a_failure_has_its_text(program):
    program.write_text("""print('{"event": "failed", "text": "no such file"}')""")
    with started() as process, pytest.raises(TerminalError, match=r"^no such file$"):
        process.answer("ready")


def test_an_end_has_the_status_and_the_last_lines(program):
    program.write_text("import sys; print('some cause', file=sys.stderr); sys.exit(3)")
    with started() as process:
        with pytest.raises(TerminalError, match=r"(?s)ended with status 3.*some cause"):
            process.answer("ready")
        process.ask(seconds=1.0)  # without effect: the process has ended


def test_an_answer_has_a_deadline(program):
    program.write_text("import sys; sys.stdin.read()")
    with started(0.2) as process, pytest.raises(TerminalError, match=r"within 0 s.*--timeout"):
        process.answer("ready")


@pytest.fixture
def run():
    """Yield the process id of a parent whose child is marked as a worker, and has used CPU time."""
    mark = process_wrapper.mark("some", "worker-0")
    child = """
import os, sys, time
while time.process_time() < 0.05: pass
print(flush=True); sys.stdin.read()
"""
    parent = f"""
import os, subprocess, sys
env = {{**os.environ, {process_wrapper.MARK_ENV!r}: {mark!r}}}
sys.exit(subprocess.run([sys.executable, "-c", {child!r}], env=env).returncode)
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        assert process.stdin is not None
        process.stdin.close()


def test_cpu_time_by_part(run):
    found = cpu_of_parts(run)
    assert set(found) == {"worker"}
    assert 0.04 <= found["worker"] < 10


def test_a_process_without_children_has_no_parts():
    assert cpu_of_parts(1 << 30) == {}
