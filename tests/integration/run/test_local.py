"""`distributed_input.local`: the processes of an input from Python, and their end."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import distributed_input
from distributed_input import ConfigError, TerminalError
from distributed_input.api.environment import DIR_ENV, NAMES_ENV
from distributed_input.runner import local as local_run
from distributed_input.runner import process_wrapper
from testing.integration.run_supervision.harness import (
    INPUT,
    SECONDS,
    WITH_FAKES,
    names_of,
    wait_until,
    with_default_signals,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes in /proc")

FAKE_RUN = (
    "import sys; del sys.argv[1]; import runpy; "
    f"runpy.run_path({WITH_FAKES[0]!r}, {{}}, '__main__')"
)
REAL_RUN = local_run._RUN
RESOURCE = {
    "apiVersion": "distributed-input.dev/v1beta1",
    "kind": "DistributedInput",
    "metadata": {"name": "train"},
}


def reading(function: str, path: str, **more: object) -> dict[str, object]:
    """Return a resource with an entry point."""
    entry = {"function": function, "source": {"type": "Path", "path": path}}
    spec = {"dataset": {"type": "EntryPoint", "entryPoint": entry}, **more}
    return {**RESOURCE, "spec": spec}


ALL = ["dispatcher", "sidecar-0", "trainer-0", "worker-0", "worker-1", "wrapper-0"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Return the folder with input.yaml and the runs' folders. Runs have fake parts."""
    with_default_signals()
    (tmp_path / "input.yaml").write_text(INPUT)
    monkeypatch.setattr(local_run, "_RUN", FAKE_RUN)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv(DIR_ENV, "outer")
    monkeypatch.delenv(NAMES_ENV, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_name(home: Path) -> str:
    """Return the name of the only run below `home`."""
    (found,) = home.glob("distributed-input-*/run-*")
    return found.name.removeprefix("run-")


def processes(run: str) -> list[str]:
    """Return the names of the live processes of a run."""
    return names_of(mark for _, mark in process_wrapper.marked(process_wrapper.mark(run, "")))


def test_connect_finds_the_run_within_the_block_and_the_outer_one_after_it(home):
    with distributed_input.local("input.yaml") as run:
        name = run_name(home)
        assert (Path(os.environ[DIR_ENV]) / "ring").is_file()
        assert os.environ[NAMES_ENV] == "train"
        assert run.is_running
        assert processes(name) == ALL
        # Ctrl-C, and Jupyter's interrupt, reach the whole group of this process.
        assert os.getpgid(run._process.pid) != os.getpgrp()
    assert os.environ[DIR_ENV] == "outer"
    assert NAMES_ENV not in os.environ
    assert not run.is_running
    assert processes(name) == []
    assert list(home.glob("distributed-input-*/run-*")) == []


def test_a_resource_may_be_a_dict_and_its_path_starts_at_the_working_folder(home, monkeypatch):
    (home / "code").mkdir()
    (home / "code" / "rows.py").write_text("def dataset_fn(context): ...\n")
    resource = reading("rows:dataset_fn", "code")
    before = copy.deepcopy(resource)
    with distributed_input.local(resource, workers=3):
        assert processes(run_name(home))[3:6] == ["worker-0", "worker-1", "worker-2"]
    assert resource == before


@pytest.mark.parametrize(
    ("resource", "workers", "message"),
    [
        ("none.yaml", None, r"^none.yaml: cannot be read: No such file or directory$"),
        ({**RESOURCE, "spec": {"seeds": 1}}, None, r"^spec.seeds: unknown field 'seeds': did you"),
        (
            reading("no_rows:f", "."),
            None,
            r"^spec.dataset.entryPoint.function: no module 'no_rows' in /",
        ),
        ({"spec": object()}, None, r"^the resource is not JSON: .*object"),
        (RESOURCE, 0, r"^workers=0: must be"),
        (RESOURCE, True, r"^workers=True: must be"),
        (RESOURCE, "all", r"^workers='all': must be"),
    ],
)
def test_an_invalid_argument_is_a_config_error(home, resource, workers, message):
    with pytest.raises(ConfigError, match=message):
        distributed_input.local(resource, workers=workers)
    assert os.environ[DIR_ENV] == "outer"


def test_a_process_that_cannot_start_is_an_error_with_its_log(monkeypatch):
    monkeypatch.setenv("FAKE_WORKER", "exit:1")
    with pytest.raises(TerminalError, match=r"worker-. ended with status 1: ModuleNotFoundError: "):
        distributed_input.local("input.yaml")
    assert os.environ[DIR_ENV] == "outer"


def test_processes_that_are_not_ready_in_time_are_an_error(monkeypatch):
    monkeypatch.setenv("FAKE_SIDECAR", "never")
    with pytest.raises(TerminalError, match=r"not ready after 0.5 s: waiting for .*sidecar-0"):
        distributed_input.local("input.yaml", timeout=0.5)


def raise_in_block(error: BaseException, home: Path) -> None:
    with distributed_input.local("input.yaml"):
        error.args = (run_name(home),)
        raise error


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_ends_the_run_and_is_not_replaced(home, kind):
    with pytest.raises(kind) as raised:
        raise_in_block(kind(), home)
    assert processes(raised.value.args[0]) == []


def test_a_run_that_ended_by_itself_is_the_error_of_its_block():
    def fail() -> None:
        with distributed_input.local("input.yaml") as run:
            run._process.kill()
            wait_until(lambda: not run.is_running)
            raise ZeroDivisionError

    with pytest.raises(TerminalError, match="the run was killed by SIGKILL") as failed:
        fail()
    assert isinstance(failed.value.__context__, ZeroDivisionError)


def test_an_interrupt_while_processes_start_leaves_none(home, monkeypatch):
    monkeypatch.setenv("FAKE_SIDECAR", "never")
    names: list[str] = []

    def interrupt() -> None:
        wait_until(lambda: len(list(home.glob("distributed-input-*/run-*/worker-*.ready"))) == 2)
        names.append(run_name(home))
        raise KeyboardInterrupt

    with_alarm(interrupt)
    with pytest.raises(KeyboardInterrupt):
        distributed_input.local("input.yaml")
    assert processes(names[0]) == []


def with_alarm(action: Callable[[], None]) -> None:
    """Call `action` in the main thread soon, as a signal handler."""
    signal.signal(signal.SIGALRM, lambda *_: action())
    signal.setitimer(signal.ITIMER_REAL, 0.1)


def test_a_cell_that_runs_again_replaces_its_run(home):
    run = distributed_input.local("input.yaml")
    first, folder = run_name(home), os.environ[DIR_ENV]
    again = distributed_input.local("input.yaml")
    assert processes(first) == []
    assert not run.is_running
    assert os.environ[DIR_ENV] != folder
    assert Path(os.environ[DIR_ENV]).is_dir()
    name = run_name(home)
    run.close()
    assert again.is_running
    del again  # nothing refers to it any more
    assert processes(name) == []
    assert os.environ[DIR_ENV] == "outer"


DATASET = """
import tensorflow as tf

def dataset_fn(context):
    rows = tf.data.Dataset.range(1000)
    return rows.shard(context.num_input_pipelines, context.input_pipeline_id)
"""


def test_connect_reads_every_row_once(home, monkeypatch):
    pytest.importorskip("tensorflow")
    monkeypatch.setattr(local_run, "_RUN", REAL_RUN)
    (home / "local_rows.py").write_text(DATASET)
    limits = {"batching": {"globalBatchSize": 8}, "sidecar": {"buffer": "1Mi"}}
    with distributed_input.local(reading("local_rows:dataset_fn", ".", **limits)):
        with distributed_input.connect("train") as train:
            rows = [row for batch in train.numpy() for row in batch.tolist()]
    assert sorted(rows) == list(range(1000))


# What ends without a call of `close`.

PROGRAM = f"""
import os, signal, sys
import distributed_input
from distributed_input.runner import local
local._RUN = {FAKE_RUN!r}
run = distributed_input.local("input.yaml")
"""


@pytest.fixture
def start():
    """Yield a function that starts PROGRAM with more lines, and waits for its first output."""
    programs = []

    def start(lines: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + lines], stdout=subprocess.PIPE, text=True
        )
        programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        return program

    yield start
    for program in programs:
        program.kill()
        with program:
            pass


def test_the_processes_end_with_a_program_that_is_killed(home, start):
    program = start("print('ready', flush=True); signal.pause()")
    name = run_name(home)
    program.kill()
    wait_until(lambda: processes(name) == [], name)


def test_the_processes_end_with_a_killed_program_that_has_a_fork(home, start):
    program = start(
        "pid = os.fork()\n"
        "if not pid: signal.pause()\n"
        "open('fork', 'w').write(str(pid))\n"
        "print('ready', flush=True); signal.pause()"
    )
    name, fork = run_name(home), int((home / "fork").read_text())
    program.kill()
    try:
        wait_until(lambda: processes(name) == [], name)
        os.kill(fork, 0)  # it lives, and holds the pipe to the run open
    finally:
        os.kill(fork, signal.SIGKILL)


def test_a_fork_that_ends_does_not_end_the_run(home, start):
    program = start(
        "pid = os.fork()\n"
        "if not pid: sys.exit()\n"
        "os.waitpid(pid, 0); print('ready', flush=True)\n"
        "signal.pause()"
    )
    assert processes(run_name(home)) == ALL
    program.kill()


def test_a_program_that_ends_waits_for_the_end_of_its_processes(home, start):
    program = start("print('ready', flush=True)")
    name = run_name(home)
    assert program.wait(SECONDS) == 0
    assert processes(name) == []
