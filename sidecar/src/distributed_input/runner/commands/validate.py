"""`distributed-input validate`: check the YAML of an input before anything runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from distributed_input.api.errors import ConfigError
from distributed_input.runner import validation
from distributed_input.runner.command_line import COUNT, argument, command, output
from distributed_input.runner.validation import ValidInput, problems_as_json
from distributed_input.runtime.args import EXIT_CONFIG

_EXAMPLES = """\
examples:
  distributed-input validate input.yaml
  distributed-input validate input.yaml --trainers 4   # can 4 trainers share it?
  distributed-input validate input.yaml -o json | jq '.problems[].message'

exit status: 0, or 2 if an input is invalid. There is one line for each problem:
  FILE:LINE: FIELD: what is wrong, and what to do
A warning does not change the exit status.
"""


@command(_EXAMPLES)
@argument("file", type=click.Path(path_type=Path), help="YAML with one input or several.")
@click.option(
    "--trainers",
    type=COUNT,
    help="Number of trainers, to compare it with the partitions. Default: not compared.",
)
@output("a JSON object")
def validate(file: Path, trainers: int | None, output: str) -> int:
    """Check the inputs in FILE: their fields, the folder of the code, the number of trainers, and
    the entry point, which is imported and called as a worker does when a job starts. If its data
    are not on this machine, a warning says what was not checked. Without TensorFlow, it is not
    imported.
    """
    valid: list[ValidInput] = []
    failed: ConfigError | None = None
    try:
        valid = validation.validate(file, trainers)
    except ConfigError as error:
        failed = error
    if output == "json":
        print(json.dumps(_as_json(file, valid, failed), indent=2))
    elif failed is not None:
        print(failed)
    for one in valid if output == "text" else ():
        print(f"{file}: {one}")
        for warning in one.warnings:
            print(f"{file}: warning: {one.name}: {warning}")
    return 0 if failed is None else EXIT_CONFIG


def _as_json(file: Path, valid: Sequence[ValidInput], failed: ConfigError | None) -> dict[str, Any]:
    """Return the result as JSON values. If there are problems, `inputs` is empty."""
    return {
        "file": str(file),
        "valid": failed is None,
        "problems": [] if failed is None else problems_as_json(failed),
        "inputs": [asdict(one) for one in valid],
    }
