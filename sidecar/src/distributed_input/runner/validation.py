"""Checks of a resource file that need this machine: the code of its entry points."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
_CHECK_SECONDS = 120.0
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
    trainers_text: str
    """The same as text."""
    warnings: tuple[str, ...] = ()
    """What the user should change, or could not be checked."""

    def __str__(self) -> str:
        return f"{self.name} is valid: {self.code}; {self.trainers_text}"


@dataclass(frozen=True)
class _Checked:
    """What the check of an entry point has found."""

    code: str
    """What was checked, as a phrase."""
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    completed: Mapping[str, Any] | None = None
    """The fields of the spec that the dataset completes. None: it was not described."""


def validate(file: Path, trainers: int | None = None) -> list[ValidInput]:
    """Check all inputs in a file; return them.

    Args:
        file: YAML with one DistributedInput or several.
        trainers: number of trainers. None: unknown.

    Raises:
        ConfigError: has one line for each problem, with file, line, field and fix.
    """
    from distributed_input.api.resource import topology

    valid: list[ValidInput] = []

    def check(resource: DistributedInput) -> Iterator[Problem]:
        checked = _check_entry_point(resource)
        spec = resource.spec.model_copy(update=checked.completed)
        found, warnings = list(checked.problems), list(checked.warnings)
        if trainers is not None:
            problem = topology.trainers_problem(spec, trainers, batch_size_is_final=True)
            found = [problem, *found] if problem else found
            if trainers > 1 and not topology.is_known(spec):
                warnings.append(
                    f"whether {trainers} trainers can share it is unknown: it depends on the "
                    f"dataset's batch size. Set spec.partitions to a multiple of {trainers}"
                )
        if not found:
            sharing = topology.partitions(spec), topology.trainer_counts(spec)
            possible = topology.possible_trainers(spec)
            name = resource.metadata.name
            valid.append(ValidInput(name, checked.code, *sharing, possible, tuple(warnings)))
        yield from found

    load_resources(file, check)
    return valid


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


def _check_entry_point(resource: DistributedInput) -> _Checked:
    """Import and call the entry point, if the code is on this machine."""
    from distributed_input.api.resource.input import input_config
    from distributed_input.api.resource.problems import Problem

    dataset = resource.spec.dataset
    if dataset.entry_point is None:
        return _Checked("the trainer sends the dataset")
    target, path = dataset.entry_point.function, dataset.path
    if path is None:
        why = "because the type of spec.dataset.entryPoint.source is not Path"
        return _Checked(f"{target} was not imported, {why}")
    if not os.path.isdir(path):
        return _Checked("")  # `load_all` reports it
    if importlib.util.find_spec("tensorflow") is None:
        return _Checked(f"{target} was not imported: {_NO_TENSORFLOW}")
    config = input_config(resource).to_json()
    imported, described = _results(target, {"name": resource.metadata.name, "config": config})
    for result in (imported, described):
        if "field" in result:
            at, text = result["field"].split("."), " ".join(result["text"].split())
            return _Checked("", problems=(Problem(tuple(at), text),))
    if "unknown" in described:
        why = f"the dataset was not checked: {' '.join(described['unknown'].split())}"
        return _Checked(f"{target} was imported, and takes the arguments", warnings=(why,))
    spec = resource.spec
    rows = described["rows"] or None
    completed = {
        "partitions": described["partitions"],
        "batching": spec.batching.model_copy(update={"global_batch_size": rows}),
        "processing_mode": "ParallelEpochs" if described["parallel"] else spec.processing_mode,
    }
    warnings = tuple(described["warnings"])
    return _Checked(f"{target} was imported and called", (), warnings, completed)


def _results(target: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check an entry point in a process like a worker; return the results of the two steps."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", _CHECK],
            input=json.dumps(given).encode(),
            env=plan.worker_env({"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}),
            capture_output=True,
            timeout=_CHECK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        first, _ = _decoded(error.stdout)
        slow = f"takes more than {_CHECK_SECONDS:g} s: see what it reads"
        if first is None:
            return _wrong(f"importing {target} {slow}"), {}
        return first, {"unknown": f"calling {target} {slow}"}
    first, second = _decoded(done.stdout)
    if first is not None and (second is not None or "field" in first):
        return first, second or {}
    step = "importing" if first is None else "calling"
    errors = done.stderr.decode(errors="replace").strip().splitlines()
    last = (errors or ["it printed nothing"])[-1]
    return first or {}, _wrong(f"{step} {target} {describe_exit(done.returncode)}: {last}")


def _decoded(output: bytes | None) -> Sequence[dict[str, Any] | None]:
    """Return the two results in the output of the check. None: it ended before."""
    lines = [line for line in (output or b"").splitlines(keepends=True) if line.endswith(b"\n")]
    found = [json.loads(line) for line in lines]
    return (*found, None, None)[:2]


def _wrong(text: str) -> dict[str, str]:
    return {"field": "spec.dataset.entryPoint.function", "text": text}
