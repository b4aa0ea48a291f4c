"""Signals, in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, sys, time
from distributed_input.runtime import shutdown
shutdown.die_with_parent(os.environ)
stopping = shutdown.Shutdown(float(sys.argv[1]))
stopping.install()
shutdown._HARD_STOP_EXTRA_SECONDS = 0.2
print("ready", flush=True)
stopping.wait()
print("draining", flush=True)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:  # in slices: a signal just before a sleep does not end it
    time.sleep(min(0.1, float(sys.argv[2])))
print("done", flush=True)
"""


def start(grace: float, drain: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(grace), str(drain)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_requests_a_stop(number):
    with start(grace=20, drain=0.1) as process:
        process.send_signal(number)
        assert process.communicate(timeout=10)[0] == "draining\ndone\n"
    assert process.returncode == 0


def test_the_second_signal_exits_at_once():
    with start(grace=20, drain=60) as process:
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.readline() == "draining\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 128 + signal.SIGINT


def test_a_hanging_process_ends_after_its_grace_and_prints_its_stacks():
    with start(grace=0.3, drain=60) as process:
        process.terminate()
        assert process.stderr is not None
        assert "most recent call first" in process.stderr.read()
        assert process.wait(10) == 1


SIGNALLED_WITHIN = """
import os, signal, sys
from distributed_input.runtime import shutdown
stopping = shutdown.Shutdown(20)
stopping.install()
left = int(sys.argv[1])

def traced(frame, event, arg):
    global left
    left -= event == "line"
    if left == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    return traced

sys.settrace(traced)
stopping.wait()
"""


@pytest.mark.slow
def test_a_signal_ends_the_wait_at_any_line():
    """A threading.Event would deadlock: the interrupted thread may hold its lock."""
    programs = [
        subprocess.Popen([sys.executable, "-c", SIGNALLED_WITHIN, str(line)])
        for line in range(1, 13)
    ]
    try:
        assert [program.wait(30) for program in programs] == [0] * 12
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.parametrize("how", ["1", "pid"])
def test_a_child_ends_with_its_parent(how):
    parent_program = f"""
import os, subprocess, sys, time
how = str(os.getpid()) if {how!r} == "pid" else "1"
child = subprocess.Popen(
    [sys.executable, "-c", {PROGRAM!r}, "0", "0"], stdout=subprocess.PIPE,
    env=dict(os.environ, DISTRIBUTED_INPUT_DIE_WITH_PARENT=how),
)
assert child.stdout.readline() == b"ready\\n"
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent_program], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert gone_within(child, 10)


def gone_within(pid: int, seconds: float) -> bool:
    """Return whether the process ended; a zombie has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ps = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], stdout=subprocess.PIPE)
        if ps.stdout[:1] in (b"", b"Z"):
            return True
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    return False


FORKING = """
import multiprocessing, select, threading
from distributed_input.runtime import shutdown

def wait_for_ever(ready):
    ready.set()
    threading.Event().wait()

stopping = shutdown.Shutdown(20)
stopping.install()
context = multiprocessing.get_context("fork")

def fork():  # as an entry point does, in a thread of the worker
    ready = context.Event()
    child = context.Process(target=wait_for_ever, args=(ready,), daemon=True)
    child.start()
    ready.wait()
    child.terminate()
    child.join()
    print(child.exitcode, bool(select.select([stopping._reader], [], [], 0)[0]), flush=True)

for run in (fork, lambda: (thread := threading.Thread(target=fork), thread.start(), thread.join())):
    run()
print(stopping.wait(0), flush=True)
"""


def test_a_forked_child_ends_by_a_signal_and_does_not_wake_its_parent():
    program = [sys.executable, "-W", "ignore", "-c", FORKING]
    found = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.splitlines() == ["-15 False", "-15 False", "False"]
