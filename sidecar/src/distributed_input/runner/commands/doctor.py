"""`distributed-input doctor`: check the installation."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from collections.abc import Sequence

from distributed_input.runner.installation import Check, Result, check_all
from distributed_input.runtime.args import CommandParser

_DESCRIPTION = """\
Check this machine, its Python packages and the cluster of the kubeconfig. It changes nothing. Each
line that is not ok states what to do. `distributed-input explain` answers why a trainer waits.
"""
_EXAMPLES = """\
examples:
  distributed-input doctor
  distributed-input doctor -n team          # may I read the inputs of this namespace?
  distributed-input doctor -o json | jq '.[] | select(.result != "ok")'

exit status: 0, or 1 if a check failed; a warning is not a failure
"""
_WIDTH = 100


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input doctor`."""
    flags = CommandParser(
        prog="distributed-input doctor",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    flags.add_argument(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help="namespace to check the rights in (default: that of the kubeconfig's context)",
    )
    flags.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="format: text, or a JSON list (default: text)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Print the checks; return the exit status."""
    options = parser().parse_args(argv)
    found = []
    for check in check_all(os.environ, options.namespace):
        found.append(check)
        if options.output == "text":
            print(as_text(check), flush=True)
    if options.output == "json":
        keys = ("name", "result", "text")
        values = [dict(zip(keys, (c.name, c.result.value, c.text), strict=True)) for c in found]
        print(json.dumps(values, indent=2))
    return int(any(check.result is Result.FAILED for check in found))


def as_text(check: Check) -> str:
    """Return one check as a line, or some lines."""
    label = f"{check.result.value:8} {check.name:14} "
    return textwrap.fill(
        check.text,
        _WIDTH,
        initial_indent=label,
        subsequent_indent=" " * len(label),
        break_on_hyphens=False,
        break_long_words=False,
    )
