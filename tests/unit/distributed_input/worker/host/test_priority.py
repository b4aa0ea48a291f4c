"""The threads and the session of the process get a low CPU priority."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """\
import os, pathlib, sys, threading
from distributed_input.worker.host.priority import lower_cpu_priority
started, end = threading.Event(), threading.Event()
thread = threading.Thread(target=lambda: (started.set(), end.wait()))
thread.start()
started.wait()
lower_cpu_priority(int(sys.argv[2]), pathlib.Path(sys.argv[1]))
print(*(os.getpriority(os.PRIO_PROCESS, one) for one in (0, thread.native_id)))
end.set()
"""


OWN = os.getpriority(os.PRIO_PROCESS, 0)
"""Niceness of the tests: not 0 under `nice`."""


def lowered(niceness: int) -> str:
    """Return what a process prints that lowers its priority to this niceness."""
    return str(max(OWN, niceness))


@pytest.mark.parametrize("leads", [True, False])
def test_the_priority_of_the_process_and_of_its_own_session(tmp_path: Path, leads: bool) -> None:
    group = tmp_path / "proc/self/autogroup"
    group.parent.mkdir(parents=True)
    group.write_text("")
    found = subprocess.run(
        [sys.executable, "-c", CODE, tmp_path, "12"], start_new_session=leads, capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    assert found.stdout.split() == [lowered(12)] * 2
    assert group.read_text() == ("12" if leads else "")  # other processes share other sessions


def test_a_lower_priority_stays(tmp_path: Path) -> None:
    """Without a right, a process cannot raise its priority again."""
    found = subprocess.run(
        ["nice", "-n", "15", sys.executable, "-c", CODE, tmp_path, "12"], capture_output=True,
        text=True, check=True, timeout=60,
    )  # fmt: skip
    assert found.stdout.split() == [str(min(19, OWN + 15))] * 2


def test_a_kernel_without_such_groups_is_no_error(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", CODE, tmp_path, "12"],
        start_new_session=True,
        check=True,
        timeout=60,
        stdout=subprocess.DEVNULL,
        cwd=os.getcwd(),
    )


WITHOUT_PROC = """\
import os, pathlib, sys
from distributed_input.worker.host.priority import lower_cpu_priority

def fail(path):
    raise FileNotFoundError(path)

os.listdir = fail
lower_cpu_priority(12, pathlib.Path(sys.argv[1]))
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


def test_without_a_list_of_threads_the_process_has_one_priority(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", WITHOUT_PROC, tmp_path], capture_output=True, text=True, check=True,
        timeout=60,
    )  # fmt: skip
    assert found.stdout.split() == [lowered(12)]
