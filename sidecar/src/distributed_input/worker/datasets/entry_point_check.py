"""`python -m distributed_input.worker.datasets.entry_point_check`: for `validate`.

Reads an input as JSON from standard input: {"name", "config": InputConfig}. Imports its entry
point, then describes its dataset, as a worker does. Prints a JSON object for each of the two steps:

- {"field", "text"}: what is wrong. No other object follows.
- {}: the entry point exists, and takes the arguments.
- {"unknown"}: why the dataset cannot be described on this machine.
- {"partitions", "rows", "parallel", "warnings"}: the described job.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError, DatasetFnError, DistributedInputError
from distributed_input.api.proto import types_pb2
from distributed_input.order.job_config import job_of_config
from distributed_input.worker.datasets import entry_points
from distributed_input.worker.datasets.describe import describe

_FIELD = re.compile(r"(?:(spec(?:\.\w+)+): )?(.*)", re.DOTALL)


def check_signature(entry: types_pb2.EntryPoint) -> None:
    """Import an entry point, and compare its parameters with the arguments.

    Raises:
        ConfigError: it does not exist, or does not take the arguments.
        DatasetFnError: its module cannot be imported.
    """
    function = entry_points.load(entry)
    arguments = json.loads(entry.args_json)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions in C have none
        return
    try:
        signature.bind(None, **arguments)
    except TypeError as error:
        raise ConfigError(
            f"spec.dataset.entryPoint.args: {entry.target}{signature} cannot be called with an "
            f"input context and the arguments {arguments}: {error}. "
            "Change the arguments or the function"
        ) from error


def described(draft: types_pb2.Job, relaxed: bool) -> dict[str, Any]:
    """Return the described job, or why it is unknown: see the module.

    Raises:
        ConfigError, DatasetFnError, SpecError: see `describe`.
    """
    try:
        job = describe(draft, relaxed)
    except DatasetFnError as error:
        # The data may be where the workers run, and not here.
        if isinstance(error.__cause__, (OSError, tf.errors.OpError)):
            return {"unknown": str(error)}
        raise
    return {
        "partitions": job.partitions,
        "rows": job.global_batch_size,
        "parallel": job.mode == types_pb2.PARALLEL_EPOCHS,
        "warnings": list(job.warnings),
    }


def results(name: str, config: InputConfig) -> Iterator[dict[str, Any]]:
    """Yield the result of each step."""
    draft = job_of_config(name, config)
    try:
        check_signature(draft.entry_point)
        yield {}
        yield described(draft, config.determinism == "relaxed")
    except DistributedInputError as error:
        match = _FIELD.fullmatch(str(error))
        assert match is not None  # it matches all text
        yield {"field": match[1] or "spec.dataset.entryPoint.function", "text": match[2]}


def main() -> int:
    """Check the entry point on standard input."""
    # What the user's module prints must not mix with the results.
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        given = json.load(sys.stdin)
        for result in results(given["name"], InputConfig.from_json(given["config"])):
            print(json.dumps(result), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
