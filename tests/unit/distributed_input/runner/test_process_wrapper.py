"""Finding processes, and being the process in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.runner import process_wrapper

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
RUN = f"test{os.getpid()}"


@pytest.fixture
def marked() -> Iterator[subprocess.Popen[bytes]]:
    env = {**os.environ, process_wrapper.MARK_ENV: process_wrapper.mark(RUN, "worker-0")}
    # `read` of a pipe that never ends: a process that waits, and says when it does.
    command = ["sh", "-c", "echo up; read x"]
    process = subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout
    process.stdout.readline()
    with process:
        yield process
        process.kill()


def test_a_mark_finds_its_processes_and_no_others(marked: subprocess.Popen[bytes]) -> None:
    assert list(process_wrapper.marked(f"{RUN}:")) == [(marked.pid, f"{RUN}:worker-0")]
    assert list(process_wrapper.marked(f"{RUN}:worker-1")) == []
    assert marked.pid in process_wrapper.descendants(os.getpid())


def test_a_run_is_killed_but_for_those_that_are_spared(marked: subprocess.Popen[bytes]) -> None:
    assert process_wrapper.kill_run(RUN, but="worker")
    assert marked.poll() is None
    assert process_wrapper.kill_run(RUN)
    assert marked.wait(5) == -9


def guarded(*command: str, say: bytes, **streams: int) -> subprocess.Popen[bytes]:
    """A guard of `command` that gets `say` and then an end of file when the caller lets go."""
    read_end, write_end = os.pipe()
    arguments = ["--lifeline", str(read_end), "--run", RUN, "--name", "trainer-0"]
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", process_wrapper.__file__, *arguments, "--", *command],
        pass_fds=[read_end],
        start_new_session=True,
        **streams,  # type: ignore[call-overload]
    )
    os.close(read_end)
    os.write(write_end, say)
    process.lifeline = write_end
    return process


def ended(process: subprocess.Popen[bytes]) -> int:
    with process:
        status = process.wait(10)
    os.close(process.lifeline)
    return status


@pytest.mark.parametrize(("script", "status"), [("exit 5", 5), ("kill -TERM $$", -15)])
def test_a_guard_ends_as_its_trainer(script: str, status: int) -> None:
    assert ended(guarded("sh", "-c", script, say=bytes([process_wrapper.START]))) == status


def test_a_guard_whose_trainer_cannot_be_started_says_why(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin
        assert cat.stdout
        start = bytes([process_wrapper.START])
        assert ended(guarded("no-such-file", say=start, stderr=cat.stdin.fileno())) == 127
        assert ended(guarded(str(tmp_path), say=start, stderr=cat.stdin.fileno())) == 126
        cat.stdin.close()
        missing, forbidden = cat.stdout.read().decode().splitlines()
    assert missing == "distributed-input: no-such-file: command not found"
    assert "ermission denied" in forbidden


def test_a_dismissed_guard_never_starts_its_trainer(tmp_path: Path) -> None:
    flag = tmp_path / "started"
    assert ended(guarded("touch", str(flag), say=bytes([process_wrapper.QUIT]))) == 0
    assert not flag.exists()


def test_a_signal_right_behind_the_start_is_not_lost() -> None:
    # Even where it comes before the trainer's exec.
    for _ in range(20):
        say = bytes([process_wrapper.START, 15])
        assert ended(guarded("sh", "-c", "while :; do read x; done", say=say)) == -15


def test_a_trainers_sigpipe_is_not_ignored() -> None:
    # Python ignores it, and what is ignored is inherited.
    grep = ["grep", "SigIgn", "/proc/self/status"]
    process = guarded(*grep, say=bytes([process_wrapper.START]), stdout=subprocess.PIPE)
    assert process.stdout
    ignored = int(process.stdout.read().split()[1], 16)
    assert ended(process) == 0
    assert not ignored & (1 << (signal.SIGPIPE - 1))
