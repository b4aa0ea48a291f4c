"""`distributed-input bench`: what would workers change for this dataset?"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed_input.api.errors import ConfigError, DistributedInputError, TerminalError
from distributed_input.runner.benchmark import comparison
from distributed_input.runner.benchmark.comparison import Comparison, Measured
from distributed_input.runner.benchmark.timed_process import (
    IN_PROCESS,
    TRAINER,
    TimedProcess,
    cpu_of_parts,
)
from distributed_input.runner.display import format as formatting
from distributed_input.runner.host_cpus import busy_share
from distributed_input.runner.local import local
from distributed_input.runner.spec import load_resources
from distributed_input.runner.validation import validate
from distributed_input.runtime.args import (
    EXIT_CONFIG,
    CommandParser,
    positive_count,
    positive_seconds,
)

_DESCRIPTION = """\
Read the dataset of the input in FILE in one process with plain tf.data, and through workers on this
machine, in turns. Print rows per second and CPU time, what workers would gain, and the next step.
The reading loop does nothing else: a training step that is slower needs fewer rows.
"""
_EXAMPLES = """\
examples:
  distributed-input bench input.yaml
  distributed-input bench input.yaml --workers 1 2 4 8 --seconds 20
  distributed-input bench input.yaml -o json | jq '.runs[] | {workers, ratio}'

The CPU columns are seconds for 1,000 rows. `start` is the time until the first rows, with that of
the processes. The other columns begin after a warm-up: half of --seconds, or the first epoch if it
ends within four times --seconds.

exit status: 0, 1 if the dataset cannot be read, or 2 if FILE or a flag is invalid
"""
_WIDTH = 100
_LONGEST_WARM_UP = 4.0
_BUSY_SECONDS = 0.5
_NOT_MEASURED = ("epochs", "tfDataService")
"""Fields of the spec that a measurement ignores."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input bench`."""
    flags = CommandParser(
        prog="distributed-input bench",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    flags.add_argument("file", metavar="FILE", type=Path, help="YAML with one input")
    flags.add_argument(
        "--workers",
        type=positive_count,
        nargs="+",
        default=[1, 2],
        metavar="N",
        help="numbers of workers to measure (default: 1 2)",
    )
    flags.add_argument(
        "--seconds",
        type=positive_seconds,
        default=5.0,
        metavar="SECONDS",
        help="time of each measurement, after a warm-up (default: 5)",
    )
    flags.add_argument(
        "--timeout",
        type=positive_seconds,
        default=120.0,
        metavar="SECONDS",
        help="time limit for processes to start, and for the first rows; also the time after which "
        "no further number of workers is measured (default: 120)",
    )
    flags.add_argument(
        "-o",
        "--output",
        choices=("text", "json"),
        default="text",
        help="format: text, or one JSON object (default: text)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Measure, and print the comparison; return the exit status."""
    options = parser().parse_args(argv)
    try:
        found = _compare(options)
    except DistributedInputError as error:
        print(f"distributed-input bench: {error}", file=sys.stderr)
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    if options.output == "json":
        print(json.dumps(comparison.as_json(found), indent=2))
    else:
        print(as_text(found), end="")
    return 0


def as_text(found: Comparison) -> str:
    """Return the table, the gain, the next step and what makes them less reliable."""
    text, next_step = comparison.gain(found)
    lines = _wrapped("gain: ", text) + _wrapped("next: ", next_step)
    lines += [line for one in comparison.warnings(found) for line in _wrapped("note: ", one)]
    return comparison.as_text(found) + "".join(f"{line}\n" for line in lines)


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * len(label)
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=label,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _compare(options: argparse.Namespace) -> Comparison:
    """Measure in process, then for each number of workers: through them, and in process again."""
    if importlib.util.find_spec("tensorflow") is None:
        raise ConfigError("TensorFlow is not installed: run `pip install 'distributed-input[run]'`")
    validate(options.file)
    resource = _only(options.file)
    name, spec = resource["metadata"]["name"], resource["spec"]
    dataset = spec["dataset"]
    in_process = {
        "target": dataset["entryPoint"],
        "args": dataset.get("args", {}),
        "path": dataset.get("source", {}).get("path"),
        "seed": spec.get("seed", 0),
        "batch": spec.get("batching", {}).get("globalBatchSize"),
    }
    busy = busy_share(_BUSY_SECONDS)
    began = first = time.monotonic()
    _progress(f"{name}: starting tf.data in one process")
    with TimedProcess(IN_PROCESS, in_process, options.timeout) as base:
        batched = base.answer("ready")["batched"]
        start = time.monotonic() - began
        direct = [replace(_measure(base, options.seconds), start=start)]
        workers: list[Measured] = []
        missing: list[str] = []
        for number in sorted(set(options.workers)):
            spent = time.monotonic() - first
            if workers and spent > options.timeout:
                missing.append(
                    f"{_workers(number)} were not measured, because the others took {spent:.0f} s: "
                    "set a higher --timeout"
                )
                continue
            _progress(f"{name}: starting {_workers(number)}")
            try:
                reader = {"name": name, "batched": batched}
                workers.append(_through_workers(resource, reader, number, options))
                direct.append(_measure(base, options.seconds))
            except TerminalError as error:  # not ConfigError, which no other number would avoid
                missing.append(f"{_workers(number)} could not be measured: {error}")
                if not workers:
                    raise
    file = os.fspath(options.file)
    return Comparison(name, file, _cpus(), busy, direct, workers, missing)


def _through_workers(
    resource: Mapping[str, Any], reader: Mapping[str, Any], number: int, options: argparse.Namespace
) -> Measured:
    """Measure a trainer that reads through a number of workers.

    Raises:
        TerminalError: they did not start, or sent no rows in time.
    """
    began = time.monotonic()
    with (
        local(resource, workers=number, timeout=options.timeout) as run,
        TimedProcess(TRAINER, reader, options.timeout) as trainer,
    ):
        trainer.answer("ready")
        start = time.monotonic() - began
        return replace(_measure(trainer, options.seconds, number, run.pid), start=start)


def _only(file: Path) -> Mapping[str, Any]:
    """Return the only input of a file as a resource for `local`.

    Raises:
        ConfigError: it has several, or one without an entry point.
    """
    found = load_resources(file, lambda _: ())
    if len(found) > 1:
        raise ConfigError(f"{file}: has {len(found)} inputs: use a file with one of them")
    (resource,) = found
    if resource.spec.dataset.entry_point is None:
        raise ConfigError(
            f"{file}: spec.dataset.entryPoint: is missing, so the dataset is known only to the "
            "trainer: set the entry point of a dataset_fn"
        )
    values = resource.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = {key: value for key, value in values["spec"].items() if key not in _NOT_MEASURED}
    return {**values, "metadata": {"name": resource.metadata.name}, "spec": spec}


def _measure(
    process: TimedProcess, seconds: float, workers: int = 0, run: int | None = None
) -> Measured:
    """Measure once, and print the rate as progress. `run` is the process id of a run."""
    longest = _LONGEST_WARM_UP * seconds
    process.ask(warmup=seconds / 2, longest=longest, seconds=seconds)
    process.answer("begun", longest)
    before = cpu_of_parts(run) if run else {}
    values = process.answer("measured", seconds)
    after = cpu_of_parts(run) if run else {}
    found = Measured(
        workers=workers,
        rows=values["rows"],
        seconds=values["seconds"],
        reader_cpu=values["cpu"],
        parts={part: spent - before.get(part, 0.0) for part, spent in after.items()},
        epochs=values["epochs"],
        early_rows=values["early_rows"],
    )
    system = _workers(workers) if workers else "tf.data in process"
    _progress(f"  {system}: {formatting.rate(found.rate)} rows/s")
    return found


def _workers(number: int) -> str:
    return f"{number} worker{'s' * (number > 1)}"


def _cpus() -> int:
    """Return the number of CPUs that this process may use."""
    affinity: Iterator[int] | None = getattr(os, "sched_getaffinity", lambda _: None)(0)
    return len(list(affinity)) if affinity else os.cpu_count() or 1


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
