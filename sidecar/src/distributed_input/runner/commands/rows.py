"""`distributed-input rows`: which rows do the trainers read?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import MAX_SHOWN, skipped_value
from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import command, output
from distributed_input.runner.dispatchers import Selection
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import StatusSample

_EXAMPLES = """\
examples:
  distributed-input rows --skipped                  # of the runs on this machine
  distributed-input rows --skipped digits -n team   # of an input in the cluster of the kubeconfig
  distributed-input rows --skipped -o json | jq -r '.skipped[].file'

exit status: 0, 1 if a dispatcher does not respond, 2 if a flag is invalid or no run is found
"""
_HEADER = ("dataset", "epoch", "split", "record", "step", "file", "error")
_TEXTS = ("step", "file", "error")


@command(_EXAMPLES)
@dispatchers.flags
@click.option("--skipped", is_flag=True, help="List the records left out.")
@output("one JSON object for each input")
def rows(selection: Selection, skipped: bool, output: str) -> int:
    """List the records that splits left out (spec.badRecords), the latest last: dataset (of a
    mixture, with the source), index of the record, file and first line of the error. The dispatcher
    keeps the last 1,000.
    """
    if not skipped:
        raise ConfigError("set --skipped")
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
