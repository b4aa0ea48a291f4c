"""`distributed-input init`: write a small project that runs as it is."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from distributed_input.api.errors import ConfigError
from distributed_input.runner.command_line import COUNT, argument, command
from distributed_input.runner.starter_project import starter_files

_EXAMPLES = """\
examples:
  distributed-input init photos
  distributed-input init . --name photos --workers 4 --batch-size 256

exit status: 0, or 2 if a value is invalid or a file exists; no file is then written
"""
_MOST_NAME = 52
_Value = TypeVar("_Value")


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", text) or len(text) > _MOST_NAME:
        raise click.BadParameter(
            f"{text!r} is not a valid name: use at most {_MOST_NAME} lower-case letters, digits "
            "and '-', starting with a letter and ending with a letter or digit"
        )
    return text


@command(_EXAMPLES)
@argument("dir", type=click.Path(path_type=Path), help="Folder; created if it is missing.")
@click.option("--name", metavar="NAME", type=_name, help="Name of the input. Default: DIR's name.")
@click.option("--workers", type=COUNT, help="Number of workers. Default: 2.")
@click.option("--batch-size", type=COUNT, help="Rows in one step over all trainers. Default: 64.")
def init(dir: Path, name: str | None, workers: int | None, batch_size: int | None) -> int:  # noqa: A002
    """Write input.yaml, dataset.py and train.py to the folder DIR. They run as they are: replace
    the dataset and the model by yours. On a terminal, asks for the values that no flag sets.
    """
    files = starter_files(
        name=_value(name, "name of the input", _default_name(dir), _name),
        workers=_value(workers, "number of workers", "2", COUNT),
        batch=_value(batch_size, "rows in one step", "64", COUNT),
    )
    _write(dir, files)
    print(f"wrote {', '.join(str(dir / file) for file in files)}. To train with it:")
    if dir.resolve() != Path.cwd():
        print(f"  cd {shlex.quote(str(dir))}")
    print("  distributed-input run input.yaml -- python train.py")
    return 0


def _value(given: _Value | None, what: str, default: str, parse: Callable[[str], _Value]) -> _Value:
    """Return the value of a flag, or of an answer on the terminal, or the default."""
    if given is not None:
        return given
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return parse(default)
    answer: _Value = click.prompt(what, default=default, value_proc=parse)
    return answer


def _default_name(folder: Path) -> str:
    """Return a name like that of the folder; "train" if that has no letter."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower())
    words = words.lstrip("-0123456789")
    return words[:_MOST_NAME].rstrip("-") or "train"


def _write(folder: Path, files: dict[str, str]) -> None:
    existing = [str(folder / file) for file in files if (folder / file).exists()]
    if existing:
        raise ConfigError(
            f"already exists: {', '.join(existing)}. Use another folder, or remove it first"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror}") from error
