"""How `distributed-input run` supervises its processes and handles the end of each.

The processes are real. The product's own parts are fakes, which start, live and end like them.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from distributed_input.runner import folders
from testing.integration.run_supervision.harness import (
    IGNORES_SIGNALS,
    LISTENING,
    Run,
    pidfd_of_ready,
    processes_end_with,
    python,
    run_starter,
    wait_for_state,
    wait_readable,
    wait_until_started,
    write_line,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes in /proc")

Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path):
    yield from run_starter(tmp_path)


def remaining_folders(home: Path) -> list[Path]:
    """Return remaining folders of the test's runs, and of all dead runs in shared memory."""
    shared = Path(f"/dev/shm/distributed-input-{os.getuid()}").glob("run-*")
    dead = [folder for folder in shared if folders.is_stale(folder)]
    return [*home.glob("distributed-input-*/run-*"), *dead]


# Exit statuses and streams.


@pytest.mark.parametrize(
    ("ending", "status"),
    [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139)],
)
def test_the_exit_status_is_that_of_the_trainer(start, ending, status):
    run = start(["sh", "-c", ending])
    assert run.wait() == status
    assert run.report()["status"] == status
    assert remaining_folders(run.home) == []


def test_the_trainer_has_the_runners_streams_and_folder(start):
    run = start(["sh", "-c", 'read line; echo "$line $PWD"; echo oops >&2'])
    write_line(run, "hello")
    assert run.wait() == 0
    assert run.out.rest() == f"hello {run.home}"
    assert "oops" in run.err.rest().splitlines()


def test_arguments_arrive_unchanged(start):
    run = start(["printf", "%s|", "a b", "--", "--trainers", "*"])
    assert run.wait() == 0
    assert run.out.rest() == "a b|--|--trainers|*|"


# Signals.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_trainer(start, number):
    run = start(python(LISTENING))
    run.out.wait_for("ready")
    with processes_end_with(run) as names:
        run.signal(number)
        assert run.wait() == 50 + number
    parts = ["dispatcher", "sidecar-0", "trainer-0", "worker-0", "worker-1", "wrapper-0"]
    assert names == parts
    assert remaining_folders(run.home) == []


def test_sigint_reaches_all_of_a_shells_children(start):
    # The shell waits for its child, as on a terminal. The child determines the status.
    run = start(["sh", "-c", f"{shlex.join(python(LISTENING))}; exit $?"])
    run.out.wait_for("ready")
    run.signal(signal.SIGINT)
    assert run.wait() in (50 + signal.SIGINT, 128 + signal.SIGINT)


def test_three_interrupts_end_a_trainer_that_ignores_signals(start):
    run = start(python(IGNORES_SIGNALS))
    run.out.wait_for("ready")
    with processes_end_with(run):
        run.signal(signal.SIGINT)
        run.err.wait_for("SIGINT: the trainer got it")
        run.signal(signal.SIGINT)
        run.err.wait_for("sending SIGTERM")
        run.signal(signal.SIGINT)
        assert run.wait() == 137


def test_a_trainer_that_ignores_signals_is_killed_after_the_grace_period(start):
    run = start(python(IGNORES_SIGNALS), "--grace-seconds", "0.3")
    run.out.wait_for("ready")
    run.signal(signal.SIGTERM)
    assert run.wait() == 137


def test_an_interrupt_while_parts_start_ends_the_run(start):
    run = start(["true"], FAKE_WORKER="never")
    wait_until_started(run, "worker-1")
    with processes_end_with(run):
        run.signal(signal.SIGINT)
        assert run.wait() == 130
    assert remaining_folders(run.home) == []


def test_an_ignored_hangup_stays_ignored(start):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = start(python(LISTENING))
    finally:
        signal.signal(signal.SIGHUP, before)
    run.out.wait_for("ready")
    run.signal(signal.SIGHUP)
    write_line(run, "4")
    assert run.wait() == 4


def test_ctrl_z_stops_the_trainer_too(start):
    run = start(python(LISTENING))
    run.out.wait_for("ready")
    trainer = run.pid("trainer-0")
    run.signal(signal.SIGTSTP)
    _, status = os.waitpid(run.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    wait_for_state(trainer, "T")
    run.signal(signal.SIGCONT)
    wait_for_state(trainer, "S")
    write_line(run, "0")
    assert run.wait() == 0


# Death of the runner.


@pytest.mark.parametrize("hiding", ["", "setsid", "env -i setsid"])
def test_no_process_outlives_a_killed_runner(start, hiding):
    # An orphan that ignores SIGTERM; then in its own session; then also without a mark.
    run = start(["sh", "-c", f"({hiding} {shlex.join(python(IGNORES_SIGNALS))} &); read x"])
    ended = pidfd_of_ready(run)
    shared = Path(str(run.ready("sidecar-0")["address"]))
    assert shared.is_dir()
    with processes_end_with(run):
        run.signal(signal.SIGKILL)
        run.wait()
    assert wait_readable(ended)
    assert remaining_folders(run.home) == []
    assert not shared.exists()


def test_no_process_outlives_a_runner_that_is_killed_while_parts_start(start):
    run = start(["true"], FAKE_WORKER="never")
    wait_until_started(run, "worker-1")
    with processes_end_with(run) as names:
        run.signal(signal.SIGKILL)
        run.wait()
    assert {"dispatcher", "worker-0", "wrapper-0"} <= set(names)


def test_the_next_run_ends_processes_of_a_killed_runner_and_wrapper(start):
    run = start(["sh", "-c", f"setsid {shlex.join(python(IGNORES_SIGNALS))} & wait"])
    run.out.wait_for("ready")
    folder = run.folder
    with processes_end_with(run):
        os.kill(run.pid("wrapper-0"), signal.SIGKILL)
        run.signal(signal.SIGKILL)
        run.wait()
        assert folder.exists()
        assert start(["true"]).wait() == 0
    assert not folder.exists()


def test_background_processes_end_with_the_trainer(start):
    run = start(
        ["sh", "-c", f"(env -i setsid {shlex.join(python(IGNORES_SIGNALS))} &); read x; exit 6"]
    )
    ended = pidfd_of_ready(run)
    write_line(run, "end")
    assert run.wait() == 6
    assert wait_readable(ended, 0)


def test_the_trainer_ends_with_a_killed_wrapper(start):
    run = start(["sh", "-c", f"{shlex.join(python(IGNORES_SIGNALS))} & wait"])
    ended = pidfd_of_ready(run)
    with processes_end_with(run):
        os.kill(run.pid("wrapper-0"), signal.SIGKILL)
        assert run.wait() == 137
    assert wait_readable(ended, 0)


def test_the_trainer_ends_with_a_killed_wrapper_while_the_runner_is_stopped(start):
    run = start(python(IGNORES_SIGNALS))
    ended = pidfd_of_ready(run)
    run.signal(signal.SIGSTOP)
    os.kill(run.pid("wrapper-0"), signal.SIGKILL)
    assert wait_readable(ended)
    run.signal(signal.SIGCONT)
    assert run.wait() == 137


# Crashes of parts.


@pytest.mark.parametrize("part", ["dispatcher", "worker-1", "sidecar-0"])
def test_a_crashed_part_restarts(start, part):
    run = start(python(LISTENING))
    run.out.wait_for("ready")
    before = run.ready(part)
    os.kill(run.pid(part), signal.SIGKILL)
    run.err.wait_for(rf"{part} was killed by SIGKILL .*: \w+ serves \(restart 1 in 0.25 s\)")
    after = wait_until_started(run, part, before["pid"])
    same_address = after["address"] == before["address"]
    assert same_address == (part != "worker-1")  # others find a worker through the dispatcher
    write_line(run, "0")
    assert run.wait() == 0
    assert run.report()["processes"][part]["restarts"] == 1


def test_a_part_that_crashes_repeatedly_ends_the_run(start):
    run = start(python(LISTENING), FAKE_SIDECAR="die:0.1")
    assert run.wait() == 3
    text = run.err.rest()
    assert "sidecar-0 was killed by SIGSEGV" in text
    assert "crashed 6 times within 60 s" in text
    assert "  sidecar-0 | " in text  # the last lines of its log
    kept = run.home / text.rpartition("the logs are in ")[2].strip()
    assert (kept / "sidecar-0.log").exists()


def test_a_worker_that_cannot_import_ends_the_run_with_its_message(start):
    run = start(["echo", "never"], FAKE_WORKER="exit:1")
    assert run.wait() == 3
    text = run.err.rest()
    assert "No module named 'digits' [it ended 3 times in a row before it was ready]" in text
    assert run.out.rest() == ""
    assert remaining_folders(run.home) == []


def test_a_part_that_refuses_its_configuration_does_not_restart(start):
    run = start(["echo", "never"], FAKE_DISPATCHER="exit:2")
    assert run.wait() == 3
    assert "restart" not in run.err.rest()
    assert run.report()["cause"]


def test_a_part_that_is_never_ready_is_reported_after_the_deadline(start):
    run = start(["echo", "never"], "--start-timeout", "2", FAKE_SIDECAR="never")
    assert run.wait() == 3
    assert re.search(r"waiting for .*sidecar-0 \(starting\)", run.err.rest())


def test_parts_that_ignore_sigterm_are_killed_at_the_end(start):
    run = start(python(LISTENING), FAKE_WORKER="ignore-term")
    run.out.wait_for("ready")
    with processes_end_with(run):
        write_line(run, "0")
        assert run.wait() == 0


# Several trainers.


def test_two_trainers_form_a_cluster(start):
    names = ("DISTRIBUTED_INPUT_CONSUMER_INDEX", "DISTRIBUTED_INPUT_CONSUMER_COUNT", "TF_CONFIG")
    code = f"import os; print('env', *(os.environ[n] for n in {names}))"
    run = start(python(code), "--trainers", "2")
    assert run.wait() == 0
    first, second = sorted(run.out.rest().splitlines(), key=lambda line: line.startswith("[1] "))
    assert first.startswith('env 0 2 {"cluster": {"worker": ["127.0.0.1:')
    assert first.endswith('"task": {"type": "worker", "index": 0}}')
    assert second.startswith("[1] env 1 2 {")
    assert second.endswith('"task": {"type": "worker", "index": 1}}')


def test_a_failed_trainer_stops_the_others(start):
    ending = 'test $DISTRIBUTED_INPUT_CONSUMER_INDEX = 1 && exit 9; exec "$0" "$@"'
    run = start(["sh", "-c", ending, *python(LISTENING)], "--trainers", "2")
    assert run.wait() == 9
    assert "trainer-1 ended with status 9: stopping the other trainers" in run.err.rest()


def test_several_inputs_share_one_sidecar(start):
    two_inputs = "\n---\n".join(
        f"apiVersion: distributed-input.dev/v1beta1\nkind: DistributedInput\n"
        f"metadata: {{name: {name}}}"
        for name in ("train", "eval")
    )
    run = start(python(LISTENING), file=two_inputs)
    run.out.wait_for("ready")
    with processes_end_with(run) as names:
        write_line(run, "0")
        assert run.wait() == 0
    parts = ["eval-dispatcher", "eval-worker-0", "sidecar-0", "train-dispatcher"]
    assert names == [*parts, "train-worker-0", "trainer-0", "wrapper-0"]


def test_keep_logs_copies_the_logs(start, tmp_path):
    assert start(["true"], "--keep-logs", str(tmp_path / "logs")).wait() == 0
    assert "worker serves" in (tmp_path / "logs" / "worker-0.log").read_text()
