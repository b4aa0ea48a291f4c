"""`distributed-input rows`: which rows are in a step, and which records were left out?"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import MAX_SHOWN, skipped_value
from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import command, output
from distributed_input.runner.dispatchers import Selection
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.format import plural, truncated
from distributed_input.runner.display.stats import StatusSample
from distributed_input.runner.processes import replay

_EXAMPLES = """\
examples:
  distributed-input rows --skipped digits -n team   # of an input in the cluster of the kubeconfig
  distributed-input rows --skipped -o json | jq -r '.skipped[].file'
  distributed-input rows --position position --input input.yaml --steps 130-140
  distributed-input rows --position position --input input.yaml --steps 137 --replay
  distributed-input rows --position position --input input.yaml --steps 137 --save step.npz
  distributed-input rows --position position --input input.yaml --find name=cat.jpg

exit status: 0, 1 if a dispatcher does not respond or rows cannot be computed, 2 if a flag or a file
is invalid or no run is found
"""
_HEADER = ("dataset", "epoch", "split", "record", "step", "file", "error")
_TEXTS = ("step", "file", "error")
_STEPS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_WIDTH = 100


@command(_EXAMPLES)
@dispatchers.flags
@click.option("--skipped", is_flag=True, help="List the records that splits left out.")
@click.option(
    "--position",
    type=click.Path(path_type=Path),
    help="File with what `position()` returned in a trainer. Answers are about its epoch.",
)
@click.option(
    "--input", "file", type=click.Path(path_type=Path), help="YAML with the input of --position."
)
@click.option("--steps", metavar="FIRST-LAST", help="Steps of the epoch, from 0. Or one step.")
@click.option(
    "--trainer", type=click.IntRange(0), help="Index of a trainer. Default: the rows of all."
)
@click.option(
    "--replay", "prints", is_flag=True, help="Compute the rows of --steps and print them."
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    help="Compute the rows of --steps and write them to this file, in numpy's format .npz.",
)
@click.option(
    "--find", metavar="COMPONENT=VALUE", help="List the steps that have a row with this value."
)
@output("one JSON object for each input")
def rows(
    selection: Selection,
    skipped: bool,
    position: Path | None,
    file: Path | None,
    steps: str | None,
    trainer: int | None,
    prints: bool,
    save: Path | None,
    find: str | None,
    output: str,
) -> int:
    """List the records that splits left out (spec.badRecords), from the dispatcher: the last 1,000.

    Or list the rows of steps, computed from a saved position. A split runs on this machine if it
    has the rows, or if its length is needed. With --find, all splits run.
    """
    if skipped and (position or file or steps or find or save or prints or trainer is not None):
        raise ConfigError("--skipped and the flags about steps exclude each other")
    if skipped:
        return _print_skipped(selection, output)
    if selection != Selection():
        raise ConfigError("NAME and the flags of a dispatcher need --skipped")
    if position is None or file is None or (steps is None) == (find is None):
        raise ConfigError("set --skipped, or --position, --input, and --steps or --find")
    if find is not None:
        if prints or save or trainer is not None:
            raise ConfigError("--find: remove --replay, --save and --trainer")
        component, value = find.split("=", 1) if "=" in find else ("", find)
        return _print_found(replay.ask(position, file, {"find": [component, value]}), output)
    question = {
        "steps": parsed_steps(steps or ""),
        "trainer": trainer,
        "values": prints or save is not None,
        "file": os.path.abspath(save) if save else None,
    }
    return _print_steps(replay.ask(position, file, question), output)


def parsed_steps(text: str) -> list[int]:
    """Return the first and the last step. Raises ConfigError."""
    match = _STEPS.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise ConfigError(f"--steps {text}: set a step such as 137, or a range such as 130-140")
    return [first, last]


def _print_skipped(selection: Selection, output: str) -> int:
    with dispatchers.opened(selection, os.environ) as found:
        samples = [
            (one, one.client.status(selection.timeout, max_skipped=MAX_SHOWN)) for one in found
        ]
    values = [(one, as_json(sample), as_text(sample)) for one, sample in samples]
    print(dispatchers.printed(values, output), end="")
    return 0


def as_text(status: StatusSample) -> str:
    """Return a table of the records that splits left out, and how many are missing in it."""
    lines = [_HEADER, *map(_row, status.skipped)]
    table = formatting.table(lines, indent="", empty="no record was left out", left=_TEXTS)
    missing = status.skipped_records - len(status.skipped)
    return table + f"{missing} earlier ones are not listed\n" * (missing > 0)


def _row(one: types_pb2.SkippedRecord) -> Sequence[str]:
    split = "all" if one.split < 0 else str(one.split)
    return one.dataset, str(one.epoch), split, str(one.index), one.step, one.file or "-", one.error


def as_json(status: StatusSample) -> dict[str, Any]:
    """Return the records that splits left out as JSON values."""
    return {
        "skipped_records": status.skipped_records,
        "skipped": [skipped_value(one) for one in status.skipped],
    }


def _print_found(answer: Mapping[str, Any], output: str) -> int:
    if output == "json":
        print(json.dumps(answer))
        return 0
    is_mixture = any(one["source"] for one in answer["found"])
    lines = [("step", *_split_header(is_mixture), "row")]
    lines += [
        ("none" if one["step"] is None else str(one["step"]), *_split(one), str(one["row"]))
        for one in answer["found"]
    ]
    text = formatting.table(lines, indent="", empty="no row has this value", left=("source",))
    print(text, end="")
    return 0


def _print_steps(answer: Mapping[str, Any], output: str) -> int:
    if output == "json":
        print(json.dumps(answer))
        return 0
    if answer["values"]:
        values = iter(answer["values"])
        for one in answer["ranges"]:
            for at in range(one["rows"]):
                names = dict(zip(_split_header(bool(one["source"])), _split(one), strict=True))
                split = ", ".join(f"{name} {value}" for name, value in names.items())
                print(f"step {one['step']}: {split}, row {one['first_row'] + at}")
                for name, value in next(values).items():
                    print(truncated(f"  {name}: {json.dumps(value)}", _WIDTH))
    else:
        is_mixture = any(one["source"] for one in answer["ranges"])
        lines = [("step", *_split_header(is_mixture), "first row", "last row")]
        lines += [
            (
                str(one["step"]),
                *_split(one),
                str(one["first_row"]),
                str(one["first_row"] + one["rows"] - 1),
            )
            for one in answer["ranges"]
        ]
        empty = "the epoch has no such step"
        print(formatting.table(lines, indent="", empty=empty, left=("source",)), end="")
    checked = sum(one["rows"] for one in answer["ranges"] if one["verified"])
    if checked:
        print(f"{plural(checked, 'row')} compared with the digests in the position: equal")
    if answer["assumed_from"] is not None:
        print(
            f"steps from {answer['assumed_from']} on: if the weights of the mixture do not change "
            "after the position was saved"
        )
    return 0


def _split_header(is_mixture: bool) -> Sequence[str]:
    return ("source", "epoch", "split") if is_mixture else ("split",)


def _split(one: Mapping[str, Any]) -> Sequence[str]:
    """Return the name of a split, as text. Only in a mixture, epochs of rows differ."""
    names = (one["source"], str(one["epoch"])) if one["source"] else ()
    return *names, str(one["split"])
