"""`python -m distributed_input.worker.datasets.entry_point_check`: for `validate`.

Reads an entry point as JSON from standard input: {"target", "args", "path"}. Imports it as a worker
would, and prints what is wrong as JSON: {"field", "text"}, or {} if nothing is. The function is not
called.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets import entry_points


def check(target: str, arguments: Mapping[str, Any], path: str | None) -> None:
    """Import an entry point, and compare its parameters with the arguments.

    Raises:
        ConfigError: it does not exist, or does not take the arguments.
        DatasetFnError: its module cannot be imported.
    """
    function = entry_points.load(types_pb2.EntryPoint(target=target, path=path or ""))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have none
        return
    try:
        signature.bind(None, **arguments)
    except TypeError as error:
        raise ConfigError(
            f"spec.dataset.args: {target}{signature} cannot be called with an input context and "
            f"the arguments {dict(arguments)}: {error}. Change the arguments or the function"
        ) from error


def main() -> int:
    """Check the entry point on standard input."""
    # What the user's module prints must not mix with the result.
    with os.fdopen(os.dup(1), "w") as result:
        os.dup2(2, 1)
        entry = json.load(sys.stdin)
        found = {}
        try:
            check(entry["target"], entry["args"], entry["path"])
        except DistributedInputError as error:
            field, _, text = str(error).partition(": ")
            if not field.startswith("spec.dataset."):
                field, text = "spec.dataset.entryPoint", str(error)
            found = {"field": field, "text": text}
        result.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
