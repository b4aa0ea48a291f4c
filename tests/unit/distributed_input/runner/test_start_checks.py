"""Checks before any process starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner import start_checks


def test_a_command_that_can_start_has_no_problem(tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.touch(mode=0o755)
    assert start_checks.command_problem("sh") is None
    assert start_checks.command_problem(str(program)) is None


def test_a_file_that_is_not_executable_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch(mode=0o644)
    text = "permission denied: run `chmod +x ./train.py`, or start it with `python ./train.py`"
    assert start_checks.command_problem("./train.py") == (126, f"./train.py: {text}")
    Path("a b").touch(mode=0o644)
    text = "./a b: permission denied: run `chmod +x './a b'`"
    assert start_checks.command_problem("./a b") == (126, text)


def test_a_command_that_is_a_directory_is_named_so(tmp_path: Path) -> None:
    status, text = start_checks.command_problem(str(tmp_path)) or (0, "")
    assert status == 126
    assert text.startswith(f"{tmp_path}: is a directory")


@pytest.mark.parametrize("program", ["no-such-command", "./no-such-file", "train.py", ""])
def test_a_missing_command_is_not_found(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch(mode=0o755)  # not in $PATH
    assert start_checks.command_problem(program) == (127, f"{program}: command not found")


def test_targets_that_can_be_written_stay_as_they_are(tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    start_checks.check_report(report)
    start_checks.check_logs(tmp_path / "logs")
    start_checks.check_logs(tmp_path)
    assert list(tmp_path.iterdir()) == []
    report.write_text("{}")
    start_checks.check_report(report)
    assert report.read_text() == "{}"


def test_a_report_may_go_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    start_checks.check_report(tmp_path / "pipe")  # and does not wait for its reader


def test_a_report_is_a_file_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, text in {
        ".": "is a folder: name a file, such as ",
        "none/run.json": f"folder {tmp_path / 'none'} does not exist",
        "file/run.json": f"{tmp_path / 'file'} is not a folder",
    }.items():
        path = tmp_path / name
        with pytest.raises(ConfigError, match=f"^--report {path}: {text}"):
            start_checks.check_report(path)


def test_logs_are_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, text in {
        "file": "is not a folder: name a folder",
        "link": "is not a folder: name a folder",
        "none/logs": f"folder {tmp_path / 'none'} does not exist",
        "file/logs": f"{tmp_path / 'file'} is not a folder",
    }.items():
        path = tmp_path / name
        with pytest.raises(ConfigError, match=f"^--keep-logs {path}: {text}"):
            start_checks.check_logs(path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_folder_in_which_no_file_can_be_created_is_rejected() -> None:
    """Not even root can, although the access rights say so, as on a read-only mount."""
    for check, path in (
        (start_checks.check_report, Path("/proc/run.json")),
        (start_checks.check_logs, Path("/proc/logs")),
        (start_checks.check_logs, Path("/proc")),
    ):
        with pytest.raises(ConfigError, match=f" {path}: cannot write to folder /proc: "):
            check(path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write to every file")
def test_a_report_that_is_read_only_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "run.json").touch(mode=0o444)
    with pytest.raises(ConfigError, match="Permission denied: name another file"):
        start_checks.check_report(tmp_path / "run.json")


@pytest.fixture
def code(tmp_path: Path) -> str:
    (tmp_path / "package" / "inner").mkdir(parents=True)
    (tmp_path / "package" / "inner" / "__init__.py").touch()
    (tmp_path / "package" / "inner" / "rows.py").write_text("raise ImportError('not imported')\n")
    (tmp_path / "checked_rows.py").write_text("def rows(context): ...\ndef make(): ...\n")
    (tmp_path / "starred_rows.py").write_text("from checked_rows import *\n")
    (tmp_path / "broken_rows.py").write_text("def (\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("checked_rows:rows", ""),
        ("checked_rows:make.inner", ""),
        ("starred_rows:rows", ""),
        ("broken_rows:rows", ""),
        ("package.inner.rows:raise", ""),
        ("json.decoder:JSONDecoder", ""),
        ("builtins:dict", ""),
        ("chekced_rows:rows", "no module 'chekced_rows' in FOLDER: check the name"),
        ("package.innr.rows:f", "no module 'package.innr.rows' in FOLDER: check the name"),
        ("checked_rows.more:rows", "no module 'checked_rows.more' in FOLDER"),
        ("checked_rows:row", "module checked_rows has no 'row'; it has rows, make"),
    ],
)
def test_an_entry_point_is_searched_without_importing_it(
    code: str, target: str, expected: str
) -> None:
    found = start_checks.entry_point_problem(target, code)
    assert found.startswith(expected.replace("FOLDER", code))
    assert bool(found) == bool(expected)


def test_without_a_folder_the_module_is_on_pythons_path() -> None:
    assert start_checks.entry_point_problem("json:loads", None) == ""
    assert "in Python's path" in start_checks.entry_point_problem("no_such_rows:f", None)
