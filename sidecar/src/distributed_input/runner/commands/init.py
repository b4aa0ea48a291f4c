"""`distributed-input init`: write a small project that runs as it is."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from distributed_input.api.errors import ConfigError
from distributed_input.runner.starter_project import starter_files
from distributed_input.runtime.args import EXIT_CONFIG, CommandParser, positive_count

_DESCRIPTION = """\
Write input.yaml, dataset.py and train.py to the folder DIR. They run as they are: replace the
dataset and the model by yours. On a terminal, asks for the values that no flag sets.
"""
_EXAMPLES = """\
examples:
  distributed-input init photos
  distributed-input init . --name photos --workers 4 --batch-size 256

exit status: 0, or 2 if a value is invalid or a file exists; no file is then written
"""
_MOST_NAME = 52
_Value = TypeVar("_Value")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input init`."""
    flags = CommandParser(
        prog="distributed-input init",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    flags.add_argument("folder", metavar="DIR", type=Path, help="folder; created if it is missing")
    flags.add_argument("--name", type=_name, help="name of the input (default: DIR's name)")
    flags.add_argument(
        "--workers", type=positive_count, metavar="N", help="number of workers (default: 2)"
    )
    flags.add_argument(
        "--batch-size",
        type=positive_count,
        metavar="N",
        help="rows in one step over all trainers (default: 64)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Write the project; return the exit status."""
    options = parser().parse_args(argv)
    folder: Path = options.folder
    try:
        files = starter_files(
            name=_value(options.name, "name of the input", _default_name(folder), _name),
            workers=_value(options.workers, "number of workers", "2", positive_count),
            batch=_value(options.batch_size, "rows in one step", "64", positive_count),
        )
        _write(folder, files)
    except ConfigError as error:
        print(f"distributed-input init: {error}", file=sys.stderr)
        return EXIT_CONFIG
    print(f"wrote {', '.join(str(folder / file) for file in files)}. To train with it:")
    if folder.resolve() != Path.cwd():
        print(f"  cd {shlex.quote(str(folder))}")
    print("  distributed-input run input.yaml -- python train.py")
    return 0


def _value(given: _Value | None, what: str, default: str, parse: Callable[[str], _Value]) -> _Value:
    """Return the value of a flag, or of an answer on the terminal, or the default."""
    if given is not None:
        return given
    asks = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        try:
            return parse((input(f"{what} [{default}]: ").strip() if asks else "") or default)
        except argparse.ArgumentTypeError as error:
            if not asks:
                raise ConfigError(str(error)) from error
            print(f"  {error}")
        except EOFError:
            raise ConfigError(
                "no answer: set the flags, see `distributed-input init --help`"
            ) from None


def _default_name(folder: Path) -> str:
    """Return a name like that of the folder; "train" if that has no letter."""
    words = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower())
    words = words.lstrip("-0123456789")
    return words[:_MOST_NAME].rstrip("-") or "train"


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", text) or len(text) > _MOST_NAME:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a valid name: use at most {_MOST_NAME} lower-case letters, digits "
            "and '-', starting with a letter and ending with a letter or digit"
        )
    return text


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
