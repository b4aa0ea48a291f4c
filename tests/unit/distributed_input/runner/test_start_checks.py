"""Checks before any process starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runner import start_checks


def test_a_command_that_can_start_has_no_problem(tmp_path):
    program = tmp_path / "train"
    program.touch(mode=0o755)
    assert start_checks.command_problem("sh") is None
    assert start_checks.command_problem(str(program)) is None


def test_a_file_that_is_not_executable_has_a_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch(mode=0o644)
    text = "permission denied: run `chmod +x ./train.py`, or start it with `python ./train.py`"
    assert start_checks.command_problem("./train.py") == (126, f"./train.py: {text}")
    Path("a b").touch(mode=0o644)
    text = "./a b: permission denied: run `chmod +x './a b'`"
    assert start_checks.command_problem("./a b") == (126, text)


def test_a_command_that_is_a_directory_is_named_so(tmp_path):
    status, text = start_checks.command_problem(str(tmp_path)) or (0, "")
    assert status == 126
    assert text.startswith(f"{tmp_path}: is a directory")


@pytest.mark.parametrize("program", ["no-such-command", "./no-such-file", "train.py", ""])
def test_a_missing_command_is_not_found(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch(mode=0o755)  # not in $PATH
    assert start_checks.command_problem(program) == (127, f"{program}: command not found")


def test_targets_that_can_be_written_stay_as_they_are(tmp_path):
    report = tmp_path / "run.json"
    for path, is_folder in ((report, False), (tmp_path / "logs", True), (tmp_path, True)):
        start_checks.check_target("--flag", path, is_folder)
    assert list(tmp_path.iterdir()) == []
    report.write_text("{}")
    start_checks.check_target("--report", report, is_folder=False)
    assert report.read_text() == "{}"
    os.mkfifo(tmp_path / "pipe")
    start_checks.check_target("--report", tmp_path / "pipe", is_folder=False)  # without a wait


@pytest.mark.parametrize(
    ("name", "is_folder", "text"),
    [
        (".", False, "is a folder: name a file, such as "),
        ("none/run.json", False, "folder .*none does not exist"),
        ("file/run.json", False, ".*file is not a folder"),
        ("file", True, "is not a folder: name a folder"),
        ("link", True, "is not a folder: name a folder"),
        ("none/logs", True, "folder .*none does not exist"),
        ("file/logs", True, ".*file is not a folder"),
        ("sealed/run.json", False, "permission denied"),
        ("sealed", True, "permission denied"),
    ],
)
def test_a_target_that_cannot_be_written_is_reported(tmp_path, monkeypatch, name, is_folder, text):
    (tmp_path / "file").touch()
    (tmp_path / "sealed").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path / "sealed")  # also as root
    path = tmp_path / name
    with pytest.raises(ConfigError, match=f"^--flag {path}: {text}"):
        start_checks.check_target("--flag", path, is_folder)


@pytest.fixture
def code(tmp_path):
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
def test_an_entry_point_is_searched_without_importing_it(code, target, expected):
    found = start_checks.entry_point_problem(target, code)
    assert found.startswith(expected.replace("FOLDER", code))
    assert bool(found) == bool(expected)


def test_without_a_folder_the_module_is_on_pythons_path():
    assert start_checks.entry_point_problem("json:loads", None) == ""
    assert "in Python's path" in start_checks.entry_point_problem("no_such_rows:f", None)
