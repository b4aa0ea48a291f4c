"""`distributed-input explain`: why do the trainers of an input wait, and what to do."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import Any

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.runner import dispatchers
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.diagnosis import Cause, Diagnosis, diagnose
from distributed_input.runner.display.stats import StatusSample
from distributed_input.runtime.args import EXIT_CONFIG, CommandParser, positive_seconds

_DESCRIPTION = """\
Watch inputs for some seconds, then print for each trainer how much of its time it waits, the cause
with figures, and the next step. The causes: trainer, sidecar, network, workers, dataset, storage,
and host if a run on this machine has too few CPUs.
For an input in a cluster, also print what the operator reports: budgets, quotas, failing pods.
"""
_EXAMPLES = """\
examples:
  distributed-input explain                 # the runs on this machine
  distributed-input explain digits -n team  # an input in the cluster of the kubeconfig
  distributed-input explain -o json | jq '.trainers[] | {trainer, cause}'
  distributed-input explain --dispatcher train-dispatcher:7070 --token-file /var/run/token

exit status: 0, 1 if a dispatcher does not respond, 2 if a flag is invalid or no run is found
"""
_WIDTH = 100


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input explain`."""
    flags = CommandParser(
        prog="distributed-input explain",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    dispatchers.add_flags(flags)
    flags.add_argument(
        "--seconds",
        type=positive_seconds,
        default=10.0,
        metavar="SECONDS",
        help="time to watch; processes report once a second (default: 10)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Print a diagnosis of each trainer; return the exit status."""
    options = parser().parse_args(argv)
    try:
        with dispatchers.opened(options, os.environ) as found:
            before = [one.client.status(options.timeout) for one in found]
            time.sleep(options.seconds)
            after = [one.client.status(options.timeout) for one in found]
    except DistributedInputError as error:
        print(f"distributed-input explain: {error}", file=sys.stderr)
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    for one, earlier, later in zip(found, before, after, strict=True):
        diagnoses = diagnose(earlier, later)
        if options.output == "json":
            trainers = list(map(as_json, diagnoses))
            values = {"input": one.name or None, "run": one.place or None}
            notes = {"problems": one.problems, "warnings": _warnings(later)}
            print(json.dumps({**values, "trainers": trainers, **notes}))
        else:
            has_title = len(found) > 1 or not diagnoses[0].trainer
            lines = f"{one.title}:\n" * has_title + "".join(map(as_text, diagnoses))
            lines += problems_as_text(one.problems)
            lines += _notes_as_text("  warning: ", _warnings(later))
            print(lines, end="")
    return 0


def as_text(one: Diagnosis) -> str:
    """Return a diagnosis as some lines."""
    facts = []
    if one.waits is not None:
        facts.append(f"waits for input {one.waits:.0%} of the time")
    if one.rows_per_second is not None:
        facts.append(f"reads {formatting.rate(one.rows_per_second)} rows/s")
    lines = [": ".join(part for part in (one.trainer, ", ".join(facts)) if part)]
    lines = lines if lines[0] else []
    cause = "" if one.cause is Cause.NONE else f"{one.cause.value}. "
    lines += _wrapped("  cause: ", f"{cause}{one.text}")
    lines += _wrapped("  next:  ", one.next_step)
    return "".join(f"{line}\n" for line in lines)


def problems_as_text(problems: Sequence[str]) -> str:
    """Return what the operator reports about an input as some lines. Empty: it is not in a cluster,
    or has no problem.
    """
    return _notes_as_text("  cluster: ", problems)


def _notes_as_text(label: str, notes: Sequence[str]) -> str:
    return "".join(f"{line}\n" for one in notes for line in _wrapped(label, one))


def _warnings(status: StatusSample) -> list[str]:
    """Return the warnings about all jobs, each once."""
    return list(dict.fromkeys(text for texts in status.warnings.values() for text in texts))


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * len(label)
    return textwrap.wrap(text, _WIDTH, initial_indent=label, subsequent_indent=indent)


def as_json(one: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON values. `waits` is a share from 0 to 1."""
    return {
        "trainer": one.trainer or None,
        "cause": one.cause.value,
        "waits": one.waits,
        "rows_per_second": one.rows_per_second,
        "text": one.text,
        "next": one.next_step,
    }
