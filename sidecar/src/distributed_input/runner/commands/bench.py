"""`distributed-input bench`: what would workers change for this dataset?"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pydantic.alias_generators import to_snake

from distributed_input.api.errors import ConfigError, TerminalError
from distributed_input.api.resource.sections.dataset import PackingSpec
from distributed_input.runner.benchmark import comparison
from distributed_input.runner.benchmark.comparison import Comparison, Measured
from distributed_input.runner.benchmark.timed_process import (
    IN_PROCESS,
    TRAINER,
    TimedProcess,
    cpu_of_parts,
)
from distributed_input.runner.command_line import (
    COUNT,
    POSITIVE_SECONDS,
    Command,
    argument,
    command,
    output,
    seconds,
)
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.format import plural, wrapped
from distributed_input.runner.display.status_client import busy_share
from distributed_input.runner.local import local
from distributed_input.runner.spec import load_resources
from distributed_input.runner.validation import validate

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
_LONGEST_WARM_UP = 4.0
_BUSY_SECONDS = 0.5
_NOT_MEASURED = ("epochs", "tfDataService")
"""Fields of the spec that a measurement ignores."""


class _Bench(Command):
    """Takes several numbers after one --workers."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before each further number."""
        words: list[str] = []
        for word in args:
            follows = words[-2:-1] == ["--workers"] and word.isdecimal()
            words += ["--workers", word] if follows else [word]
        return super().parse_args(ctx, words)


@command(_EXAMPLES, _Bench)
@argument("file", type=click.Path(path_type=Path), help="YAML with one input.")
@click.option(
    "--workers",
    type=COUNT,
    multiple=True,
    default=[1, 2],
    metavar="N...",
    help="Numbers of workers to measure.",
)
@seconds(5, "Time of each measurement, after a warm-up.")
@click.option(
    "--timeout",
    type=POSITIVE_SECONDS,
    default=120,
    help="Time limit for processes to start, and for the first rows; also the time after which no "
    "further number of workers is measured.",
)
@output("one JSON object")
def bench(file: Path, workers: Sequence[int], seconds: float, timeout: float, output: str) -> int:
    """Read the dataset of the input in FILE in one process with plain tf.data, and through workers
    on this machine, in turns. Print rows per second and CPU time, what workers would gain, and the
    next step. The reading loop does nothing else: a training step that is slower needs fewer rows.
    """
    found = _compare(file, workers, seconds, timeout)
    if output == "json":
        print(json.dumps(comparison.as_json(found), indent=2))
    else:
        print(as_text(found), end="")
    return 0


def as_text(found: Comparison) -> str:
    """Return the table, the gain, the next step and what makes them less reliable."""
    text, next_step = comparison.gain(found)
    lines = wrapped("gain: ", text) + wrapped("next: ", next_step)
    lines += "".join(wrapped("note: ", one) for one in comparison.warnings(found))
    return comparison.as_text(found) + lines


def _packing(fields: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields of types_pb2.Packing; None if rows are not packed."""
    if fields is None:
        return None
    packing = PackingSpec.model_validate(fields)
    return {**packing.model_dump(), "method": to_snake(packing.method)}


def _compare(file: Path, numbers: Sequence[int], seconds: float, timeout: float) -> Comparison:
    """Measure in process, then for each number of workers: through them, and in process again."""
    if importlib.util.find_spec("tensorflow") is None:
        raise ConfigError("TensorFlow is not installed: run `pip install 'distributed-input[run]'`")
    validate(file)
    resource = _only(file)
    name, spec = resource["metadata"]["name"], resource["spec"]
    entry = spec["dataset"]["entryPoint"]
    in_process = {
        "target": entry["function"],
        "args": entry.get("args", {}),
        "path": entry.get("source", {}).get("path"),
        "seed": spec.get("seed", 0),
        "batch": spec.get("batching", {}).get("globalBatchSize"),
        "packing": _packing(spec.get("packing")),
    }
    busy = busy_share(_BUSY_SECONDS)
    began = first = time.monotonic()
    _progress(f"{name}: starting tf.data in one process")
    with TimedProcess(IN_PROCESS, in_process, timeout) as base:
        batched = base.answer("ready")["batched"]
        start = time.monotonic() - began
        direct = [replace(_measure(base, seconds), start=start)]
        workers: list[Measured] = []
        missing: list[str] = []
        for number in sorted(set(numbers)):
            spent = time.monotonic() - first
            if workers and spent > timeout:
                missing.append(
                    f"{plural(number, 'worker')} were not measured, because the others took "
                    f"{spent:.0f} s: set a higher --timeout"
                )
                continue
            _progress(f"{name}: starting {plural(number, 'worker')}")
            try:
                reader = {"name": name, "batched": batched}
                workers.append(_through_workers(resource, reader, number, seconds, timeout))
                direct.append(_measure(base, seconds))
            except TerminalError as error:  # not ConfigError, which no other number would avoid
                missing.append(f"{plural(number, 'worker')} could not be measured: {error}")
                if not workers:
                    raise
    return Comparison(name, os.fspath(file), _cpus(), busy, direct, workers, missing)


def _through_workers(
    resource: Mapping[str, Any],
    reader: Mapping[str, Any],
    number: int,
    seconds: float,
    timeout: float,
) -> Measured:
    """Measure a trainer that reads through a number of workers.

    Raises:
        TerminalError: they did not start, or sent no rows in time.
    """
    began = time.monotonic()
    with (
        local(resource, workers=number, timeout=timeout) as run,
        TimedProcess(TRAINER, reader, timeout) as trainer,
    ):
        trainer.answer("ready")
        start = time.monotonic() - began
        return replace(_measure(trainer, seconds, number, run.pid), start=start)


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
    system = plural(workers, "worker") if workers else "tf.data in process"
    _progress(f"  {system}: {formatting.rate(found.rate)} rows/s")
    return found


def _cpus() -> int:
    """Return the number of CPUs that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
