"""Marks of processes, and the parent process of a trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from distributed_input.api.environment import RUN_MARK_ENV
from distributed_input.runner import process_wrapper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
RUN = f"test{os.getpid()}"


def test_the_mark_is_the_contracts_variable():
    assert process_wrapper.MARK_ENV == RUN_MARK_ENV


@pytest.fixture
def marked():
    env = {**os.environ, process_wrapper.MARK_ENV: process_wrapper.mark(RUN, "worker-0")}
    # It prints a line, then waits for a line from a pipe that stays open.
    command = ["sh", "-c", "echo up; read x"]
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout
    process.stdout.readline()
    with process:
        yield process
        process.kill()


def test_a_mark_finds_its_processes_and_no_others(marked):
    assert list(process_wrapper.marked(f"{RUN}:")) == [(marked.pid, f"{RUN}:worker-0")]
    assert list(process_wrapper.marked(f"{RUN}:worker-1")) == []
    assert marked.pid in process_wrapper.descendants(os.getpid())


def test_killing_a_run_excludes_the_named_processes(marked):
    assert process_wrapper.kill_run(RUN, except_names="worker")
    assert marked.poll() is None
    assert process_wrapper.kill_run(RUN)
    assert marked.wait(5) == -9


def wrapped(*command: str, sent: bytes, **streams: int) -> subprocess.Popen[bytes]:
    """Start a wrapper of `command` with `sent` in its pipe. `ended` closes the pipe."""
    read_end, write_end = os.pipe()
    packages = str(Path(psutil.__file__).parents[1])
    options = process_wrapper.Options(command, read_end, RUN, "trainer-0", packages)
    process = subprocess.Popen(
        process_wrapper.command(options),
        pass_fds=[read_end],
        start_new_session=True,
        **streams,  # type: ignore[call-overload]
    )
    os.close(read_end)
    os.write(write_end, sent)
    process.lifeline = write_end
    return process


def ended(process: subprocess.Popen[bytes]) -> int:
    with process:
        status = process.wait(10)
    os.close(process.lifeline)
    return status


@pytest.mark.parametrize(("script", "status"), [("exit 5", 5), ("kill -TERM $$", -15)])
def test_a_wrapper_ends_with_its_trainers_status_or_signal(script, status):
    assert ended(wrapped("sh", "-c", script, sent=bytes([process_wrapper.START]))) == status


def test_a_trainer_that_cannot_start_is_reported(tmp_path):
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin
        assert cat.stdout
        start = bytes([process_wrapper.START])
        assert ended(wrapped("no-such-file", sent=start, stderr=cat.stdin.fileno())) == 127
        assert ended(wrapped(str(tmp_path), sent=start, stderr=cat.stdin.fileno())) == 126
        cat.stdin.close()
        missing, forbidden = cat.stdout.read().decode().splitlines()
    assert missing == "distributed-input: no-such-file: command not found"
    assert "ermission denied" in forbidden


def test_a_wrapper_that_gets_quit_never_starts_its_trainer(tmp_path):
    flag = tmp_path / "started"
    assert ended(wrapped("touch", str(flag), sent=bytes([process_wrapper.QUIT]))) == 0
    assert not flag.exists()


def test_a_signal_directly_after_the_start_is_not_lost():
    # Even if it arrives before the trainer's exec.
    for _ in range(20):
        sent = bytes([process_wrapper.START, 15])
        assert ended(wrapped("sh", "-c", "while :; do read x; done", sent=sent)) == -15


def test_a_trainers_sigpipe_is_not_ignored():
    # Python ignores SIGPIPE, and children inherit that.
    grep = ["grep", "SigIgn", "/proc/self/status"]
    process = wrapped(*grep, sent=bytes([process_wrapper.START]), stdout=subprocess.PIPE)
    assert process.stdout
    ignored = int(process.stdout.read().split()[1], 16)
    assert ended(process) == 0
    assert not ignored & (1 << (signal.SIGPIPE - 1))
