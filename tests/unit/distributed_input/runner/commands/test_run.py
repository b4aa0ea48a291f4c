"""The flags of `distributed-input run`, and its dry run."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from distributed_input import cli
from distributed_input.runner.commands import run as command
from distributed_input.runner.display import report
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.supervisor import RunResult

INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
"""


def test_a_dry_run_starts_nothing_and_prints_every_command(tmp_path, called):
    file = tmp_path / "input.yaml"
    file.write_text(INPUT)
    flags = [str(file), "--workers", "2", "--trainers", "2", "--dry-run"]
    text = called(["run", *flags, "--", "no-such-command", "a b"]).out
    names = [line[2:] for line in text.splitlines() if line.startswith("# ")]
    parts = ["dispatcher", "worker-0", "worker-1", "sidecar-0", "sidecar-1"]
    assert names[1:] == [*parts, "trainer-0", "trainer-1"]
    assert text.count("no-such-command 'a b'") == 2


def test_a_local_worker_replaces_those_of_the_file(tmp_path, called):
    file = tmp_path / "input.yaml"
    file.write_text(INPUT + "spec: {workers: {replicas: 3}}\n")
    text = called(["run", str(file), "--workers", "local", "--dry-run", "--", "true"]).out
    assert text.count("distributed_input.worker") == text.count("--idle-cpus") == 1


@pytest.mark.parametrize(
    ("flags", "text"),
    [(["--workers", "local"], ""), ([], "spec: {workers: {local: {cpus: 1, memory: 1Gi}}}\n")],
)
def test_workers_that_use_idle_cpus_are_refused_on_other_systems(
    tmp_path, capsys, monkeypatch, flags, text
):
    monkeypatch.setattr(sys, "platform", "darwin")
    file = tmp_path / "input.yaml"
    file.write_text(INPUT + text)
    assert cli.main(["run", str(file), *flags, "--", "true"]) == 2
    assert "need Linux: set a number of workers, for example --workers 2" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--workers", "0"], ["--trainers", "x"], ["--grace-seconds=-1"]])
def test_a_number_out_of_bounds_is_rejected(flags, called):
    assert flags[0].partition("=")[0] in called(["run", "input.yaml", *flags, "--", "true"], 2).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["python", "train it.py", "--epochs", "3"], "`-- python 'train it.py' --epochs 3`"),
        ([], "no trainer command: add it after `--`, as in `-- python train.py`"),
        (["--"], "no trainer command"),
    ],
)
def test_a_missing_trainer_command_is_reported(arguments, message, called):
    assert message in called(["run", "input.yaml", *arguments], 2).err


def test_an_unknown_flag_is_reported(capsys):
    assert cli.main(["run", "input.yaml", "--worker", "2"]) == 2
    assert "--workers" in capsys.readouterr().err.partition("Did you mean")[2]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An input, in a test in which no process may start."""

    def fail(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(command, "Supervisor", fail)
    file = tmp_path / "input.yaml"
    file.write_text(INPUT)
    return file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INPUT.partition("metadata")[0], "metadata: "),
        (INPUT + "spec: {worker: {replicas: 2}}\n", "spec.worker: "),
    ],
)
def test_an_error_in_the_file_is_one_line_and_starts_no_process(file, text, message, called):
    file.write_text(text)
    (line,) = called(["run", str(file), "--", "true"], 2).err.splitlines()
    assert message in line


@pytest.mark.parametrize("flag", ["--report", "--keep-logs"])
def test_results_that_cannot_be_written_are_reported_before_the_start(file, flag, called):
    target = file.parent if flag == "--report" else file
    (line,) = called(["run", str(file), flag, str(target), "--", "true"], 2).err.splitlines()
    assert line.startswith(f"distributed-input: {flag} {target}: is ")


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_folder_without_room_for_the_runs_folder_is_status_2(file, called):
    (line,) = called(["run", str(file), "--dir", "/proc", "--", "true"], 2).err.splitlines()
    assert "/proc" in line


def test_a_command_that_is_not_executable_is_status_126(file, capsys, called):
    assert f"{file}: permission denied" in called(["run", str(file), "--", str(file)], 126).err
    assert cli.main(["run", str(file), "--", "no-such-command"]) == 127
    assert "no-such-command: command not found" in capsys.readouterr().err


def ended(folder: Path, status: int) -> tuple[RunResult, RunFolders]:
    """Return a run that ended, with one log."""
    folders = RunFolders("0123", folder, folder)
    folders.logs.mkdir(parents=True)
    folders.log("worker-0").write_text("a line\n")
    final = report.of_run(status, cause="", seconds=1.0, inputs={}, processes={})
    return RunResult(final, failed_log=None, interrupted=False, trained=True), folders


def test_the_logs_of_a_failed_run_are_kept_elsewhere_if_their_folder_fails(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    wanted = tmp_path / "file"
    wanted.touch()
    options = SimpleNamespace(keep_logs=wanted, report=None)
    assert command._finish(*ended(tmp_path / "run", 1), options) == 1
    text = capsys.readouterr().err
    kept = tmp_path / "distributed-input-logs-0123"
    assert f"the logs cannot be copied to {wanted}\n" in text
    assert f"the logs are in {kept}\n" in text
    assert (kept / "worker-0.log").read_text() == "a line\n"
