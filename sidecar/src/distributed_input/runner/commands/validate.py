"""`distributed-input validate`: check the YAML of an input before anything runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from distributed_input.api.errors import ConfigError
from distributed_input.runner.validation import validate
from distributed_input.runtime.args import EXIT_CONFIG, CommandParser, positive_count

_DESCRIPTION = """\
Check the inputs in FILE: their fields, the folder of the code, the number of trainers, and the
entry point, which is imported but not called. Without TensorFlow, the entry point is not imported.
"""
_EXAMPLES = """\
examples:
  distributed-input validate input.yaml
  distributed-input validate input.yaml --trainers 4   # can 4 trainers share it?

exit status: 0, or 2 if an input is invalid. There is one line for each problem:
  FILE:LINE: FIELD: what is wrong, and what to do
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input validate`."""
    flags = CommandParser(
        prog="distributed-input validate",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    flags.add_argument("file", metavar="FILE", type=Path, help="YAML with one input or several")
    flags.add_argument(
        "--trainers",
        type=positive_count,
        metavar="N",
        help="number of trainers, to compare it with the partitions (default: not compared)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Print the problems, or one line about each valid input; return the exit status."""
    options = parser().parse_args(argv)
    try:
        valid = validate(options.file, options.trainers)
    except ConfigError as error:
        print(error)
        return EXIT_CONFIG
    for line in valid:
        print(f"{options.file}: {line}")
    return 0
