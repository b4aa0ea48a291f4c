"""`distributed-input validate`: check the YAML of an input before anything runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed_input.api.errors import ConfigError
from distributed_input.runner.validation import ValidInput, problems_as_json, validate
from distributed_input.runtime.args import EXIT_CONFIG, CommandParser, positive_count

_DESCRIPTION = """\
Check the inputs in FILE: their fields, the folder of the code, the number of trainers, and the
entry point, which is imported and called as a worker does when a job starts. If its data are not on
this machine, a warning says what was not checked. Without TensorFlow, it is not imported.
"""
_EXAMPLES = """\
examples:
  distributed-input validate input.yaml
  distributed-input validate input.yaml --trainers 4   # can 4 trainers share it?
  distributed-input validate input.yaml -o json | jq '.problems[].message'

exit status: 0, or 2 if an input is invalid. There is one line for each problem:
  FILE:LINE: FIELD: what is wrong, and what to do
A warning does not change the exit status.
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
    flags.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="format: text, or a JSON object (default: text)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Print the problems, or one line about each valid input; return the exit status."""
    options = parser().parse_args(argv)
    valid: list[ValidInput] = []
    failed: ConfigError | None = None
    try:
        valid = validate(options.file, options.trainers)
    except ConfigError as error:
        failed = error
    if options.output == "json":
        print(json.dumps(_as_json(options.file, valid, failed), indent=2))
    elif failed is not None:
        print(failed)
    else:
        for one in valid:
            print(f"{options.file}: {one}")
            for warning in one.warnings:
                print(f"{options.file}: warning: {one.name}: {warning}")
    return 0 if failed is None else EXIT_CONFIG


def _as_json(file: Path, valid: Sequence[ValidInput], failed: ConfigError | None) -> dict[str, Any]:
    """Return the result as JSON values. If there are problems, `inputs` is empty."""
    return {
        "file": str(file),
        "valid": failed is None,
        "problems": [] if failed is None else problems_as_json(failed),
        "inputs": [
            {
                "name": one.name,
                "code": one.code,
                "partitions": one.partitions,
                "trainers": one.trainers,
                "trainers_text": one.possible,
                "warnings": list(one.warnings),
            }
            for one in valid
        ],
    }
