"""The completion of shells, tried in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from distributed_input import cli


def complete(*words: str) -> list[str]:
    """Return what the program completes after these words; the last one is incomplete."""
    env = {
        **os.environ,
        "_DISTRIBUTED_INPUT_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["distributed-input", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "distributed_input.cli"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.stdout.split()


def test_commands():
    assert complete("ex") == ["plain,explain"]


def test_every_command_is_completed():
    known = {*cli.COMMANDS, *cli.PROCESSES, *cli.PLUGINS, "version", "help"}
    assert {word.removeprefix("plain,") for word in complete("")} == known


def test_flags_of_a_command():
    assert complete("run", "--tra") == ["plain,--trainers"]
    assert complete("status", "--tok") == ["plain,--token-file"]


def test_files():
    assert complete("run", "in")[0].startswith("file,")
    assert complete("run", "input.yaml", "--", "in")[0].startswith("file,")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_valid(shell, called):
    text = called(["completion", shell]).out
    assert "_DISTRIBUTED_INPUT_COMPLETE" in text
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=text, text=True, check=True)
