"""`distributed-input init`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distributed_input import cli
from distributed_input.runner.starter_project import starter_files

FILES = ["dataset.py", "input.yaml", "train.py"]


def written(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_flags_set_the_values(tmp_path, capsys):
    folder = tmp_path / "a" / "b c"
    flags = ["--name", "photos", "--workers", "3", "--batch-size", "48"]
    assert cli.main(["init", str(folder), *flags]) == 0
    assert written(folder) == starter_files("photos", 3, 48)
    assert f"cd '{folder}'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("folder", "name"),
    [("My_Photos.2", "my-photos-2"), ("7", "train"), ("x" * 51 + "-y", "x" * 51)],
)
def test_the_name_is_by_default_that_of_the_folder(tmp_path, folder, name):
    assert cli.main(["init", str(tmp_path / folder)]) == 0
    assert written(tmp_path / folder) == starter_files(name, 2, 64)


def test_a_file_that_exists_is_kept(tmp_path, called):
    (tmp_path / "train.py").write_text("mine")
    assert f"already exists: {tmp_path / 'train.py'}. Use" in called(["init", str(tmp_path)], 2).err
    assert written(tmp_path) == {"train.py": "mine"}


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path, called):
    (tmp_path / "file").write_text("")
    assert "Not a directory" in called(["init", str(tmp_path / "file" / "below")], 2).err


@pytest.mark.parametrize("flag", ["--name=Photos", "--name=a.b", "--workers=0", "--batch-size=x"])
def test_an_invalid_flag_is_status_2(tmp_path, flag):
    assert cli.main(["init", str(tmp_path / "new"), flag]) == 2
    assert not (tmp_path / "new").exists()


def test_a_terminal_is_asked_for_what_no_flag_sets(tmp_path, monkeypatch, capsys):
    answers = iter(["Photos", "photos", ""])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    def answer(question: str) -> str:
        print(question)
        return next(answers)

    monkeypatch.setattr("click.termui.visible_prompt_func", answer)
    assert cli.main(["init", str(tmp_path / "new"), "--workers", "5"]) == 0
    assert written(tmp_path / "new") == starter_files("photos", 5, 64)
    printed = capsys.readouterr().out
    assert printed.count("name of the input [new]:") == 2
    assert "rows in one step [64]:" in printed
    assert "number of workers" not in printed
    assert "'Photos' is not a valid name" in printed


def test_a_terminal_without_an_answer_is_status_1(tmp_path, monkeypatch, called):
    def closed(_: str) -> str:
        raise EOFError

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr("click.termui.visible_prompt_func", closed)
    assert called(["init", str(tmp_path / "new")], 2).err.endswith("set the flags, see --help\n")
