"""Check the shell commands in the documentation, without running them."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from distributed_input import cli
from testing.documentation.blocks import ROOT
from testing.site.reference.cli import command_of, parser_of

_SEPARATORS = {"|", "||", "&&", ";", "do", "then", "(", ")", "&"}
_ELSEWHERE = set(". bash cd done echo export for sed source version= jq ssh git uv".split())
"""Programs whose arguments are the user's."""
_OWN_FILES = {"train.py", "input.yaml", "job.yaml", "dataset.py"}
"""Files of the user: `distributed-input init` writes the first."""
_PACKAGES = {"distributed-input", "distributed-input-operator", "scikit-learn", "tensorflow"}
_TARGET = re.compile(r"^([a-z0-9-]+):.*## ", re.MULTILINE)
_STAGE = re.compile(r"^FROM .* AS (\S+)$", re.MULTILINE | re.IGNORECASE)
_ARGUMENT = re.compile(r"^ARG (\w+)", re.MULTILINE)


def problems(text: str) -> list[str]:
    """Return what is wrong with a block of shell commands."""
    syntax = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    if syntax.returncode:
        return [syntax.stderr.strip()]
    return [problem for words in commands(text) for problem in command_problems(words)]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a block. Substitutions stay words."""
    joined = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", text.replace("\\\n", " "))
    for line in joined.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if word in _SEPARATORS:
                if words:
                    yield words
                words = []
            else:
                words.append(word)
        if words:
            yield words


def command_problems(words: list[str], strict: bool = True) -> list[str]:
    """Return what is wrong with one command. Without `strict`, it may lack arguments."""
    while words and re.fullmatch(r"\w+=.*", words[0]):  # variables
        words = words[1:]
    if not words:
        return []
    program, *rest = words
    if program == "kubectl" and rest[:1] == ["dinput"]:
        program, rest = "distributed-input", rest[1:]
    checks = {
        "distributed-input": lambda: _own(rest, strict),
        "distributed-input-operator": lambda: [] if rest == ["--help"] else ["only --help"],
        "make": lambda: _make(rest),
        "python": lambda: _python(rest),
        "pip": lambda: _pip(rest),
        "docker": lambda: _docker(rest),
        "helm": lambda: _helm(rest),
        "kubectl": lambda: _kubectl(rest),
    }
    if program in checks:
        return [f"{shlex.join(words)}: {problem}" for problem in checks[program]()]
    if program.startswith((".venv/bin/", ".ci/")) or program in _ELSEWHERE:
        return []
    return [f"{program}: no check knows this program: add one"]


def _own(words: list[str], strict: bool) -> Iterator[str]:
    command, *flags = words or [""]
    if command in ("help", "version", "--version", "--help", "COMMAND"):
        return
    if command not in {**cli.COMMANDS, **cli.PROCESSES, **cli.PLUGINS}:
        yield f"no command {command!r}"
        return
    if "--" in flags:
        after = flags[flags.index("--") + 1 :]
        yield from command_problems(after) if after[0] == "python" else ()
        flags = flags[: flags.index("--")]
    flags = ["1" if re.fullmatch(r"N|SECONDS|LINES", one) else one for one in flags]
    if command in cli.COMMANDS:
        yield from _of_click(command_of(command), flags, strict)
        return
    parser = parser_of(command)
    if strict:
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(errors):
                parser.parse_args(flags)
        except SystemExit as end:
            if end.code:
                yield errors.getvalue().strip().splitlines()[-1]
        return
    known = {flag for action in parser._actions for flag in action.option_strings}
    for flag in flags:
        if flag.startswith("-") and flag.partition("=")[0] not in known:
            yield f"no flag {flag}"


def _of_click(command: click.Command, flags: list[str], strict: bool) -> Iterator[str]:
    known = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    if not strict:
        names = [one.partition("=")[0] for one in flags if one.startswith("-")]
        yield from (f"no flag {name}" for name in names if name not in {*known, "--help", "-h"})
        return
    try:
        command.make_context(str(command.name), flags)
    except click.exceptions.Exit:  # --help
        pass
    except click.ClickException as error:
        yield error.format_message()


def _make(words: list[str]) -> Iterator[str]:
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    for word in words:
        if re.fullmatch(r"[a-z0-9-]+", word) and word not in targets:
            yield f"no target {word}"


def _python(words: list[str]) -> Iterator[str]:
    if words[0] == "-m":
        if importlib.util.find_spec(words[1]) is None:
            yield f"no module {words[1]}"
        else:
            yield from _flags_in_source(words[1], words[2:])
    elif words[0] not in _OWN_FILES and not (ROOT / words[0]).is_file():
        yield f"no file {words[0]}"


def _flags_in_source(module: str, words: list[str]) -> Iterator[str]:
    """Check that the module has each flag. Its main module has the parser."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin)
    sources = [file] if file.name != "__init__.py" else list(file.parent.glob("*.py"))
    text = "".join(one.read_text() for one in sources)
    for word in words:
        if word.startswith("--") and f'"{word}"' not in text:
            yield f"no flag {word}"


def _pip(words: list[str]) -> Iterator[str]:
    names = [one.partition("[")[0] for one in words[1:] if not one.startswith("-")]
    for name in names:
        if name not in _PACKAGES and name != "dist":
            yield f"unknown package {name}"


def _docker(words: list[str]) -> Iterator[str]:
    if words[0] != "build":
        return
    folder = words[-1]
    file = ROOT / folder / "Dockerfile"
    if not file.is_file():
        yield f"no file {folder}/Dockerfile"
        return
    text = file.read_text()
    if folder == "." and "TRAINER_IMAGE" in " ".join(words):
        text = (ROOT / "docs" / "trainer-image.md").read_text()  # the template on the same page
    for flag, value in itertools.pairwise(words):
        argument = value.partition("=")[0]
        if flag == "--build-arg" and argument not in _ARGUMENT.findall(text):
            yield f"no build argument {argument}"
        if flag == "--target" and value != "$part" and value not in _STAGE.findall(text):
            yield f"no stage {value}"


def _helm(words: list[str]) -> Iterator[str]:
    values = yaml.safe_load((ROOT / "charts" / "distributed-input" / "values.yaml").read_text())
    for word in words:
        if word.startswith("charts/") and not (ROOT / word).is_dir():
            yield f"no chart {word}"
    for flag, value in itertools.pairwise(words):
        if flag == "--set" and not _has(values, value.partition("=")[0]):
            yield f"the chart has no value {value}"


def _has(values: object, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _kubectl(words: list[str]) -> Iterator[str]:
    for flag, value in itertools.pairwise(words):
        theirs = value == "-" or value in _OWN_FILES
        if flag in ("-f", "--filename") and not theirs and not (ROOT / value).is_file():
            yield f"no file {value}"
