"""`distributed-input doctor`: check the installation."""

from __future__ import annotations

import json
import os

from distributed_input.runner.command_line import command, namespace, output
from distributed_input.runner.display.format import wrapped
from distributed_input.runner.installation import Check, Result, check_all

_EXAMPLES = """\
examples:
  distributed-input doctor
  distributed-input doctor -n team          # may I read the inputs of this namespace?
  distributed-input doctor -o json | jq '.[] | select(.result != "ok")'

exit status: 0, or 1 if a check failed; a warning is not a failure
"""


@command(_EXAMPLES)
@namespace("Namespace to check the rights in.")
@output("a JSON list")
def doctor(namespace: str | None, output: str) -> int:
    """Check this machine, its Python packages and the cluster of the kubeconfig. It changes
    nothing. Each line that is not ok states what to do. `distributed-input explain` answers why a
    trainer waits.
    """
    found = []
    for check in check_all(os.environ, namespace):
        found.append(check)
        if output == "text":
            print(as_text(check), end="", flush=True)
    if output == "json":
        values = [{"name": c.name, "result": c.result.value, "text": c.text} for c in found]
        print(json.dumps(values, indent=2))
    return int(any(check.result is Result.FAILED for check in found))


def as_text(check: Check) -> str:
    """Return one check as a line, or some lines."""
    return wrapped(f"{check.result.value:8} {check.name:14} ", check.text)
