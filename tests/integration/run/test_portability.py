"""Without the calls that macOS lacks, processes start, deliver every row once, and end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from testing.integration.run_supervision.harness import HAS_GUARDS, names_of, wait_readable
from testing.portability import shim
from testing.portability.limited import run_limited

ROOT = Path(__file__).parents[3]
SECONDS = 540.0
"""Time limit of the tests below `testing.portability`. A busy machine needs some minutes."""


@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.skipif(sys.platform != "linux", reason="the shim is for Linux")
def test_a_part_of_make_portability():
    pytest.importorskip("tensorflow")
    command = [sys.executable, "-m", "testing.portability", "--quick"]
    status, output = run_limited(command, SECONDS, ROOT)
    assert status == 0, output


STARTS_ANOTHER = """
import os, subprocess, sys
action, pipe = sys.argv[1:]
held = os.open(pipe, os.O_WRONLY)
other = subprocess.Popen(
    [sys.executable, "-S", "-c", "import time; time.sleep(600)"], pass_fds=[held]
)
print("began", flush=True)
if action == "waits":
    other.wait()
"""


@pytest.mark.parametrize(("action", "seconds", "status"), [("waits", 3, -9), ("ends", 60, 0)])
def test_a_limited_command_ends_with_its_processes(action, seconds, status, tmp_path):
    """Both processes hold the end of a pipe. The other end is readable when they have ended."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    command = [sys.executable, "-S", "-c", STARTS_ANOTHER, action, str(pipe)]
    found = run_limited(command, seconds, tmp_path)
    assert found[0] == status
    if action == "ends":
        assert found[1] == "began\n"
    assert wait_readable(reader)


def test_processes_are_merged_only_if_wrappers_have_guards():
    assert os.path.isdir("/proc/self") != HAS_GUARDS
    assert names_of(["run:b", "run:a", "run:b"]) == (["a", "b"] if HAS_GUARDS else ["a", "b", "b"])


@pytest.mark.parametrize(
    ("options", "inserted"),
    [(["-I", "-S"], True), (["-S"], True), (["-S", "-c"], False), (["-m"], False), ([], False)],
)
def test_isolated_programs_get_the_shim(options, inserted):
    """Other programs import sitecustomize."""
    own = [shim.__file__] if inserted else []
    command = [sys.executable, *options, "program", "argument"]
    assert shim.shimmed(command) == [sys.executable, *options, *own, "program", "argument"]
    assert shim.shimmed(["sh", "-I"]) == ["sh", "-I"]
