"""The completion of shells, tried in a real bash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from distributed_input import cli
from distributed_input.runner.commands import completion


def complete(*words: str) -> list[str]:
    """Return what bash completes after these words; the last one is incomplete."""
    script = completion.script("bash", completion._flags())
    quoted = " ".join(f"'{word}'" for word in words)
    setup = f"COMP_WORDS=(distributed-input {quoted}); COMP_CWORD={len(words)}"
    program = f'{script}\n{setup}\n_distributed_input\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands() -> None:
    assert complete("ex") == ["explain"]


def test_every_command_is_completed() -> None:
    known = {*cli._COMMANDS, *cli._PLUGINS, "version", "help"}
    assert set(complete("")) == known


def test_flags_of_a_command() -> None:
    assert complete("run", "--tra") == ["--trainers"]
    assert complete("status", "--tok") == ["--token-file"]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "input.yaml").touch()
    assert complete("run", f"{tmp_path}/in") == [f"{tmp_path}/input.yaml"]
    assert complete("run", "input.yaml", "--", f"{tmp_path}/in") == [f"{tmp_path}/input.yaml"]


def test_words_are_not_file_names() -> None:
    """Otherwise bash adds a slash to a command if a folder has its name."""
    assert "-o filenames -F" not in completion.script("bash", {})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert completion.main([shell]) == 0
    text = capsys.readouterr().out
    assert "--trainers" in text or "-l trainers" in text
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=text, text=True, check=True)
