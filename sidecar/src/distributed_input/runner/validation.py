"""Checks of a resource file that need this machine: the code of its entry points."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed_input.api.errors import ConfigError
from distributed_input.runner import plan
from distributed_input.runner.processes.supervised_process import describe_exit
from distributed_input.runner.spec import load_resources

if TYPE_CHECKING:
    from distributed_input.api.resource.input import DistributedInput
    from distributed_input.api.resource.problems import LocatedProblem, Problem

_CHECK = "distributed_input.worker.datasets.entry_point_check"
_IMPORT_SECONDS = 120.0
_NO_TENSORFLOW = "TensorFlow is not installed here: run `pip install 'distributed-input[run]'`"


@dataclass(frozen=True)
class ValidInput:
    """A valid input: what was checked, and what was not. It is one line as text."""

    name: str
    code: str
    """What was checked of the entry point, as a phrase."""
    partitions: int | None
    """None: the batch size of the dataset sets it."""
    trainers: list[int] | None
    """Possible numbers of trainers. None: any, or not known before the dataset is read."""
    possible: str
    """The same as text."""

    def __str__(self) -> str:
        return f"{self.name} is valid: {self.code}; {self.possible}"


@dataclass
class Validation:
    """The checks of one file. `validate` creates it."""

    trainers: int | None
    valid: list[ValidInput] = field(default_factory=list)

    def check(self, resource: DistributedInput) -> Iterator[Problem]:
        """Yield the problems of a resource whose fields are valid."""
        from distributed_input.api.resource import topology

        found: list[Problem] = []
        if self.trainers is not None:
            problem = topology.trainers_problem(
                resource.spec, self.trainers, batch_size_is_final=True
            )
            found += [problem] if problem else []
        code, imported = _check_entry_point(resource)
        found += code
        yield from found
        if not found:
            spec = resource.spec
            valid = ValidInput(
                resource.metadata.name,
                imported,
                topology.partitions(spec),
                topology.trainer_counts(spec),
                topology.possible_trainers(spec),
            )
            self.valid.append(valid)


def validate(file: Path, trainers: int | None = None) -> list[ValidInput]:
    """Check all inputs in a file; return them.

    Args:
        file: YAML with one DistributedInput or several.
        trainers: number of trainers. None: unknown.

    Raises:
        ConfigError: has one line for each problem, with file, line, field and fix.
    """
    validation = Validation(trainers)
    load_resources(file, validation.check)
    return validation.valid


def problems_as_json(error: ConfigError) -> list[dict[str, Any]]:
    """Return the problems of an error of `validate` as JSON values. None: of the whole file."""
    # Without an import of ResourceError: the package of the resource's models may be missing.
    located: Sequence[LocatedProblem] = getattr(error.__cause__, "located", ())
    if not located:
        return [{"line": None, "field": None, "message": str(error)}]
    return [
        {"line": one.line, "field": one.field or None, "message": one.problem.text}
        for one in located
    ]


def _check_entry_point(resource: DistributedInput) -> tuple[list[Problem], str]:
    """Return the problems of the entry point, and one phrase about what was checked."""
    from distributed_input.api.resource.problems import Problem

    dataset = resource.spec.dataset
    target, path = dataset.entry_point, dataset.source.path
    if target is None:
        return [], "the trainer sends the dataset"
    if path is None:
        return [], f"{target} was not imported, because spec.dataset.source is not a path"
    if not os.path.isdir(path):
        return [], ""  # `load_all` reports it
    if importlib.util.find_spec("tensorflow") is None:
        return [], f"{target} was not imported: {_NO_TENSORFLOW}"
    found = _import({"target": target, "args": dataset.args, "path": path})
    if not found:
        return [], f"{target} was imported, and takes the arguments"
    return [Problem(tuple(found["field"].split(".")), found["text"])], ""


def _import(entry: Mapping[str, Any]) -> dict[str, str]:
    """Import an entry point in a process like a worker; return what is wrong, or {}."""
    target = entry["target"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", _CHECK],
            input=json.dumps(entry),
            env=plan.worker_env({"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}),
            capture_output=True,
            text=True,
            timeout=_IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _wrong(
            f"importing {target} takes more than {_IMPORT_SECONDS:g} s: see what it reads"
        )
    try:
        found: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return _wrong(f"importing {target} {describe_exit(done.returncode)}: {last}")
    return {name: " ".join(text.split()) for name, text in found.items()}


def _wrong(text: str) -> dict[str, str]:
    return {"field": "spec.dataset.entryPoint", "text": text}
